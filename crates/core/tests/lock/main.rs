//! Tests of keyed locks: the numbered cases, and further guarantees.

#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod cancel;
mod class_names;
mod detection;
mod hand;
mod hostile;
mod model;
mod moved;
mod order;
mod single_flight;
mod view;

//! Tests of keyed locks: the numbered cases, and further guarantees.

#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod cancel;
mod detection;
mod flight;
mod hand;
mod hostile;
mod model;
mod moved;
mod names;
mod order;
mod view;

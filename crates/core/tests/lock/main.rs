//! The numbered cases of keyed locks, and what else they promise.

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

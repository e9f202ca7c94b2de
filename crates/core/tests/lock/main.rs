//! The numbered cases of keyed locks, and what else they promise.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

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

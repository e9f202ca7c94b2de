//! The command line as users and scripts use it: the real binary, its output and its exit codes.
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod bench;
#[cfg(unix)]
mod config;
mod demo;
mod doctor;
#[cfg(unix)]
mod dry_run;
#[cfg(unix)]
mod first_minutes;
mod idempotency;
#[cfg(unix)]
mod listings;
mod locks;
#[cfg(unix)]
mod packaging;
#[cfg(unix)]
mod postgres;
#[cfg(unix)]
mod questions;
mod reactions;
mod repair;
#[cfg(unix)]
mod restored;
mod runs;
mod schedules;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
mod state;
#[cfg(unix)]
mod streams;
mod support;
mod surface;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod top;
mod work;

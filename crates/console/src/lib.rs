//! Shared parts of Tidelock's programs, the command line and the benchmarks.
//!
//! [`address`] parses and opens stores, [`output`] prints tables and JSON, and [`bench`](mod@bench) generates load and measures the
//! baselines beside it. This crate is for the programs of this workspace and promises no stable interface.
#![expect(clippy::print_stderr, reason = "programs print warnings")]

pub mod address;
pub mod bench;
pub mod connection;
pub mod duration;
pub mod filesystem;
pub mod output;
pub mod parent_death;
pub mod progress;
pub mod random;
pub mod server_url;
pub mod temp_schema;
pub mod usage;

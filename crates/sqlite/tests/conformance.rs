//! The conformance kit on SQLite.

mod common;

tidelock_tck::conformance!(crate::common::Sqlite::default());

//! The conformance kit on PostgreSQL.

mod common;

tidelock_tck::conformance!(crate::common::Postgres::default());

//! The conformance kit on files: the cases that need only documents.

mod common;

tidelock_tck::conformance!(crate::common::Files::default());

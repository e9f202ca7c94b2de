//! Pure decisions: rows and a time in, a decision out. No async, no I/O, no clock.
//!
//! Every backend loads the rows that a batch touches into [`working_set::WorkingSet`], calls [`commit::decide`], and writes the
//! changes. The rules of the contract are therefore implemented once, here, and a backend only moves rows.

pub mod batch;
pub mod claim;
pub mod commit;
pub mod cron;
pub mod delta;
mod document;
pub mod draft;
pub mod epoch;
pub(crate) mod hash;
mod json_size;
pub mod lease;
pub mod limits;
pub mod pattern;
pub mod rate;
pub mod receipt;
pub mod refusal;
pub mod retry;
pub mod rows;
mod stream;
mod work;
pub mod working_set;

#[cfg(test)]
mod tests;

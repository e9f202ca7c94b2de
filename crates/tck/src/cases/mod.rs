//! The cases, one file per section. `build.rs` finds them; a file that is not declared here stops the build.

pub mod aggregates;
pub mod documents;
pub mod edge;
pub mod events;
pub mod expiry;
pub mod histories;
pub mod hold;
pub mod kills;
pub mod lease;
pub mod limits;
pub mod mutations;
pub mod operating;
pub mod operators;
pub mod order;
pub mod paging;
pub mod processes;
pub mod properties;
pub mod reacting;
pub mod reactions;
pub mod repeat;
pub mod runtime_state;
pub mod schedules;
pub mod state;
pub mod store;
pub mod truncation;
pub mod workflow;

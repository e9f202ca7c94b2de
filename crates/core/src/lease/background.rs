//! The background threads of leases: one renews, one acquires, waits and releases.
//!
//! Renewal has a thread to itself. Thousands of waiters, or a store whose futures block their thread, delay each other on
//! the other one, and never the renewal of a lease that is held. If the process dies, its leases expire in the store.

use super::error::LeaseError;
use crate::runtime::background::Background;

/// Renews the leases that are held, and does nothing else.
pub(super) static RENEWAL: Background = Background::new("tidelock-leases");
/// Acquires and releases leases, and waits in lines.
pub(super) static TASKS: Background = Background::new("tidelock-lease-tasks");

/// Runs a task in the background and waits for its output. Dropping the future does not stop the task.
pub(crate) async fn run<F>(task: F) -> Result<F::Output, LeaseError>
where
    F: Future<Output: Send> + Send + 'static,
{
    let task = TASKS.spawn(task).map_err(no_thread)?;
    task.await.map_err(|ended| LeaseError::NoKeeper { reason: ended.to_string() })
}

/// Converts the failure to start a thread.
pub(super) fn no_thread(error: std::io::Error) -> LeaseError {
    LeaseError::NoKeeper { reason: error.to_string() }
}

//! Background tasks of leases, which outlive their callers.

use super::error::LeaseError;
use crate::worker::TASKS;

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

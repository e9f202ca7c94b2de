//! Configurations that a worker rejects before it starts.

use std::sync::Arc;

use super::{Queue, Worker, WorkflowError};
use crate::store::MemoryStore;

#[tokio::test]
async fn a_worker_of_no_queue_is_refused() {
    let refused = Worker::new(Arc::new(MemoryStore::new())).queues(Vec::<Queue>::new()).start().await;
    assert!(matches!(refused, Err(WorkflowError::Invalid(_))), "{refused:?}");
}

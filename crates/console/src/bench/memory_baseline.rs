//! The baseline in memory: a map of lists behind one mutex.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tidelock::prelude::*;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::commit;
use super::statistics::per_second;

/// Returns appends per second of `producers` tasks, each append with a new id and the payload of the commit workload.
///
/// # Errors
/// When the payload or a key is invalid.
pub async fn appends_per_second(producers: u32, length: Duration) -> Result<f64> {
    let shared = Arc::new(Mutex::new(HashMap::<Key, Vec<(EventId, Payload)>>::new()));
    let payload = Payload::from_json(commit::payload_text())?;
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..producers {
        let (shared, payload) = (Arc::clone(&shared), payload.clone());
        let key = commit::stream_key("many", number)?;
        tasks.spawn(async move {
            let mut count = 0_usize;
            while started.elapsed() < length {
                let mut map = shared.lock().await;
                map.entry(key.clone()).or_default().push((EventId::new(), payload.clone()));
                count += 1;
            }
            count
        });
    }
    let count: usize = tasks.join_all().await.into_iter().sum();
    Ok(per_second(count, started.elapsed()))
}

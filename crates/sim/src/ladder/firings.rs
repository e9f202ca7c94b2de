//! Schedules: each firing has one effect in the store.

use std::sync::Arc;
use std::time::Duration;

use tidelock::Service;
use tidelock::prelude::*;

use super::count_once;
use super::outside::Outside;
use crate::scenario::SimError;

pub(super) fn serve(service: Service, outside: &Arc<Outside>) -> Service {
    let outside = Arc::clone(outside);
    let report = Schedule::new("report").every(Duration::from_secs(3)).run(move |tick: Tick| {
        let outside = Arc::clone(&outside);
        async move {
            outside.call(tick.key()).await?;
            count_once(Batch::new(), "ticked", &tick.key())
        }
    });
    service.schedule(report)
}

/// Checks that no firing had its effect twice.
pub(super) async fn check(tide: Tidelock) -> Result<(), SimError> {
    let page = tide.store().documents(&KeyPrefix::kind("ticked"), Page::first(500)).await?;
    for document in page.rows {
        let value: serde_json::Value = document.value.parse()?;
        if value.get("count").and_then(serde_json::Value::as_i64) != Some(1) {
            return Err(format!("firing {} had its effect {value} times", document.key).into());
        }
    }
    Ok(())
}

//! Schedules: each firing has one effect in the store.

use std::sync::Arc;
use std::time::Duration;

use tidelock::Service;
use tidelock::prelude::*;

use super::outside::Outside;
use super::{check_once, count_once};
use crate::scenario::SimError;

pub(super) fn serve(service: Service, outside: &Arc<Outside>) -> Service {
    let (outside, steady) = (Arc::clone(outside), Arc::clone(outside));
    let backup = Schedule::new("backup").every(Duration::from_secs(4)).run(move |tick: Tick| {
        let outside = Arc::clone(&steady);
        async move {
            outside.begin(&tick.key());
            outside.pause(2_000).await;
            count_once(Batch::new(), "ticked", &tick.key())
        }
    });
    let report = Schedule::new("report").every(Duration::from_secs(3)).run(move |tick: Tick| {
        let outside = Arc::clone(&outside);
        async move {
            outside.call(tick.key()).await?;
            count_once(Batch::new(), "ticked", &tick.key())
        }
    });
    service.schedule(report).schedule(backup)
}

/// Checks that no firing had its effect twice, and that none that began was lost.
pub(super) async fn check(tide: Tidelock, outside: Arc<Outside>) -> Result<(), SimError> {
    let mut begun = outside.keys("begun backup:");
    // The last one may be executing.
    begun.pop();
    for key in begun {
        check_once(&tide, "ticked", key.trim_start_matches("begun ")).await?;
    }
    let page = tide.store().documents(&KeyPrefix::kind("ticked"), Page::first(500)).await?;
    for document in page.rows {
        let value: serde_json::Value = document.value.parse()?;
        if value.get("count").and_then(serde_json::Value::as_i64) != Some(1) {
            return Err(format!("firing {} had its effect {value} times", document.key).into());
        }
    }
    Ok(())
}

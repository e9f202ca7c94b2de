//! `tidelock runs queues` and `limit`: shows and changes the limits of queues.

use anyhow::Result;
use comfy_table::Table;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::WorkFilter;
use tidelock::workflow::{QueueLimits, Rate, WorkflowClient};

use crate::args::{RunsLimit, RunsQueues};
use crate::exit::Exit;
use crate::output;
use crate::render::{self, Listing};

/// The printed report of a queue.
#[derive(Debug, Serialize)]
struct QueueView {
    queue: String,
    concurrency: Option<u32>,
    rate: Option<Rate>,
    /// Whether runs with different fairness keys start in turn.
    fair: bool,
    /// The number of concurrency slots in use, if the queue has any.
    driven: Option<u64>,
}

/// Lists queues.
pub(super) async fn list(options: &RunsQueues) -> Result<Exit> {
    render::listing(&options.look, &options.pages, async |store, ask| {
        let mut queues = WorkflowClient::new(SharedStore::clone(store)).queues().await?;
        queues.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (queues, next) = ask.of(queues, |(queue, _)| queue);
        let mut views = Vec::new();
        for (queue, QueueLimits { concurrency, rate, fair }) in queues {
            let driven = match concurrency {
                Some(_) => Some(store.count_work(&held(&queue)?).await?),
                None => None,
            };
            views.push(QueueView { queue, concurrency, rate, fair, driven });
        }
        Ok(Listing::new("queues", views, table).or("no queue has limits").next(next))
    })
    .await
}

/// Returns the filter for the held concurrency slots of a queue.
fn held(queue: &str) -> Result<WorkFilter> {
    let queue = tidelock::workflow::seats_of(queue)?;
    Ok(WorkFilter { queue: Some(queue), leased: Some(true), ..WorkFilter::default() })
}

fn table(views: &[QueueView]) -> Table {
    let mut table = output::table(&["queue", "driven", "at once", "rate", "in turn"], &[]);
    for view in views {
        let number = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
        table.add_row([
            output::flat(&view.queue),
            number(view.driven.map(|driven| driven.to_string())),
            number(view.concurrency.map(|most| most.to_string())),
            number(view.rate.map(words)),
            if view.fair { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table
}

fn words(rate: Rate) -> String {
    let burst = if rate.burst > 1 { format!(", {} at once", rate.burst) } else { String::new() };
    format!("{} in {:?}{burst}", rate.runs, rate.per)
}

/// Sets limits.
pub(super) async fn limit(client: &WorkflowClient, options: &RunsLimit) -> Result<Exit> {
    let RunsLimit { queue, concurrency, rate, burst, .. } = options;
    let rate = rate.map(|(runs, per)| Rate { runs, per, burst: *burst });
    let limits = QueueLimits { concurrency: *concurrency, rate, fair: false };
    let before = client.queue_limits(queue).await?;
    client.limit_queue(queue, limits).await?;
    let after = client.queue_limits(queue).await?;
    let sentence = match before == after {
        true => format!("queue {} had these limits", output::flat(queue)),
        false => format!("queue {}: {}", output::flat(queue), describe(&after)),
    };
    output::print_report(options.place.output, &after, sentence)
}

fn describe(limits: &QueueLimits) -> String {
    let at_once = limits.concurrency.map(|most| format!("{most} at once"));
    let all: Vec<String> = [at_once, limits.rate.map(words)].into_iter().flatten().collect();
    if all.is_empty() { "no limits".to_owned() } else { all.join(", ") }
}

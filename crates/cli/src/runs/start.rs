//! `tidelock runs start`: starts a run of a workflow that a worker has registered.

use anyhow::Result;
use serde::Serialize;
use tidelock::clock::Due;
use tidelock::prelude::*;
use tidelock::workflow::{RunHandle, RunStatus, WorkflowClient};

use super::{on, shown};
use crate::args::{Layout, RunsStart};
use crate::exit::Exit;
use crate::{input, output};

/// The printed report.
#[derive(Debug, Serialize)]
struct Report<'a> {
    run: &'a str,
    workflow: &'a str,
    /// The final status, when the command waited for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<RunStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Payload>,
}

/// Starts a run, and waits for it on request.
pub(super) async fn run(options: &RunsStart) -> Result<Exit> {
    let given = match (&options.input, &options.input_file) {
        (Some(typed), _) => input::typed(typed)?,
        (None, Some(file)) => input::in_file(file)?,
        (None, None) => Payload::default(),
    };
    on(&options.place, async |client, _| {
        let handle = start(&client, given, options).await?;
        let report = Report { run: handle.run(), workflow: &options.workflow, status: None, output: None };
        if options.wait {
            return wait(&client, &handle, report, options.place.output).await;
        }
        output::print_report(options.place.output, &report, output::flat(handle.run()))
    })
    .await
}

async fn start(
    client: &WorkflowClient,
    given: Payload,
    options: &RunsStart,
) -> Result<RunHandle<serde_json::Value>> {
    let mut start = client.start_named(&options.workflow, given).await?;
    if let Some(id) = &options.id {
        start = start.id(id);
    }
    if let Some(queue) = &options.queue {
        start = start.queue(queue);
    }
    if let Some(priority) = options.priority {
        start = start.priority(Priority::new(priority)?);
    }
    if let Some(wait) = options.after {
        start = start.due(Due::After(wait));
    }
    for (name, value) in &options.attribute {
        start = start.attribute(name, value);
    }
    Ok(start.await?)
}

async fn wait(
    client: &WorkflowClient,
    handle: &RunHandle<serde_json::Value>,
    mut report: Report<'_>,
    layout: Layout,
) -> Result<Exit> {
    if layout == Layout::Table {
        eprintln!("started {}", shown(handle.run()));
    }
    handle.result().await?;
    // The output is read from the stored run, which keeps all digits.
    let view = client.show(handle.run()).await?;
    let brought = view.output.unwrap_or_default();
    let text = output::pretty(&brought);
    (report.status, report.output) = (Some(view.status), Some(brought));
    output::print_report(layout, &report, text)
}

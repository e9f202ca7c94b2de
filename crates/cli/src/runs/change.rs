//! `tidelock runs signal`, `cancel`, `resume` and `fork`: commands that change a run or derive one
//! from it.

use anyhow::Result;
use serde::Serialize;
use tidelock::workflow::WorkflowClient;
use uuid::Uuid;

use super::{activity, on, shown};
use crate::args::{RunsCancel, RunsFork, RunsResume, RunsSignal};
use crate::exit::Exit;
use crate::output::print_report;
use crate::{confirm, input, output};

/// The printed report of a signal.
#[derive(Debug, Serialize)]
struct Signalled<'a> {
    run: &'a str,
    signal: &'a str,
    id: Option<&'a str>,
}

/// Sends a signal.
pub(super) async fn signal(options: &RunsSignal) -> Result<Exit> {
    let value = options.value.as_deref().map(input::typed).transpose()?.unwrap_or_default();
    let (run, name, id) = (&options.run, &options.name, options.id.as_deref());
    on(&options.place, async |client, _| {
        client.signal_named(run, name, id, value).await?;
        let report = Signalled { run, signal: name, id };
        print_report(
            options.place.output,
            &report,
            format!("{} will receive {}", shown(run), output::flat(name)),
        )
    })
    .await
}

/// The printed report of a cancellation or a resumption.
#[derive(Debug, Serialize)]
struct RunChange<'a> {
    run: &'a str,
    reason: &'a str,
    dry_run: bool,
}

/// Requests the cancellation of a run.
pub(super) async fn cancel(client: &WorkflowClient, options: &RunsCancel) -> Result<Exit> {
    let RunsCancel { run, reason, consent, place } = options;
    let view = client.show(run).await?;
    let (name, workflow) = (shown(run), output::flat(&view.workflow));
    let question = format!(
        "{name} is a run of {workflow}, {} ({}). Cancel it?",
        view.status,
        activity::whole(&view.doing)
    );
    // A run that has ended cannot be cancelled, so no confirmation is needed.
    if !view.status.is_over() && consent.dry_run {
        let report = RunChange { run, reason, dry_run: true };
        return print_report(place.output, &report, format!("{name} would be asked to stop"));
    }
    if !view.status.is_over() && !confirm::agreed(&question, consent.yes)? {
        return Ok(Exit::Failed);
    }
    client.cancel(run, reason).await?;
    print_report(
        place.output,
        &RunChange { run, reason, dry_run: false },
        format!("{name} was asked to stop, and cleans up now"),
    )
}

/// Resumes a run.
pub(super) async fn resume(client: &WorkflowClient, options: &RunsResume) -> Result<Exit> {
    let RunsResume { run, reason, place } = options;
    client.resume(run, reason).await?;
    print_report(place.output, &RunChange { run, reason, dry_run: false }, format!("{} resumed", shown(run)))
}

/// The printed report of a fork.
#[derive(Debug, Serialize)]
struct Forked<'a> {
    run: &'a str,
    of: &'a str,
    from: &'a str,
}

/// Starts a run with the history of another one.
pub(super) async fn fork(client: &WorkflowClient, options: &RunsFork) -> Result<Exit> {
    let RunsFork { run, from, id, place } = options;
    let id = id.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
    let handle = client.fork(run, from, &id).await?;
    print_report(place.output, &Forked { run: handle.run(), of: run, from }, output::flat(handle.run()))
}

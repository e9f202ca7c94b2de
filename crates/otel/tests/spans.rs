//! Spans of a request and of its consequences in another process, with a subscriber and an exporter as in a real program.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use serde::{Deserialize, Serialize};
use tidelock_core::events::{Aggregate, Events};
use tidelock_core::lock::{LockClass, Locks};
use tidelock_core::reactions::{Reaction, Reactions};
use tidelock_core::store::{Batch, SharedStore};
use tidelock_core::telemetry::{EVENTS_EXECUTE, LOCK_WAIT, REACTION_RUN, WORKFLOW_RUN, WORKFLOW_STEP};
use tidelock_core::workflow::{Ctx, Failure, Worker, Workflow, WorkflowClient};
use tidelock_sqlite::{SqliteOptions, SqliteStore};
use tracing::Instrument as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

const GREET: Workflow<String, String> = Workflow::new("greet");
static DOOR: LockClass = LockClass::new("door");

#[derive(Clone, Debug, Default)]
struct Guests(u32);

#[derive(Debug, Serialize, Deserialize)]
enum GuestEvent {
    Came,
}

impl Aggregate for Guests {
    const KIND: &'static str = "guests";
    type Event = GuestEvent;

    fn apply(&mut self, _: &GuestEvent) {
        self.0 += 1;
    }
}

async fn open(path: &Path) -> SharedStore {
    Arc::new(SqliteStore::open(path, SqliteOptions::default()).await.unwrap())
}

/// Runs a command and starts a run within a span, in one store on the file.
async fn request(path: &Path) {
    let store = open(path).await;
    let events = Events::new(Arc::clone(&store));
    let came = |_: &Guests| Ok::<_, String>([GuestEvent::Came]);
    events.execute("today", came).await.unwrap();
    WorkflowClient::new(store).start(GREET, &"Ada".to_owned()).id("ada").await.unwrap();
}

/// Runs a reaction and a worker on the same file, in another store, like another process.
async fn follow_up(path: &Path) {
    let store = open(path).await;
    let reaction = Reaction::new("count").on(["Came"]).each(async |_, _| Ok::<_, Failure>(Batch::new()));
    let running = Reactions::new(Arc::clone(&store)).with(reaction).start().await.unwrap();
    let greet = async |cx: &Ctx, name: String| -> Result<String, Failure> {
        Ok(cx.step("say", async |_| Ok(format!("hello {name}"))).await?)
    };
    let driving = Worker::new(Arc::clone(&store)).register(GREET, greet).start().await.unwrap();
    assert_eq!(WorkflowClient::new(store).handle(GREET, "ada").result().await.unwrap(), "hello Ada");
    running.quiesce().await.unwrap();
    running.shutdown().await;
    driving.shutdown().await;
}

async fn wait_at_the_door() {
    let locks = Locks::new();
    let door = DOOR.key(["front"]).unwrap();
    let held = locks.lock(&door).await.unwrap();
    let waiting = tokio::spawn({
        let (locks, door) = (locks.clone(), door.clone());
        async move { drop(locks.lock(&door).await.unwrap()) }
    });
    while locks.snapshot().terms.iter().all(|term| term.waiters.is_empty()) {
        tokio::task::yield_now().await;
    }
    drop(held);
    waiting.await.unwrap();
}

fn by_name(spans: &[SpanData]) -> BTreeMap<&str, &SpanData> {
    spans.iter().map(|span| (span.name.as_ref(), span)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_follow_from_what_was_committed() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    tracing_subscriber::registry().with(layer).init();
    tidelock_otel::install().unwrap();
    assert!(tidelock_otel::install().is_err(), "the first one stays");

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    request(&path).instrument(tracing::info_span!("request")).await;
    follow_up(&path).await;
    wait_at_the_door().await;
    provider.force_flush().unwrap();

    let spans = exporter.get_finished_spans().unwrap();
    let spans = by_name(&spans);
    let (request, execute) = (spans["request"], spans[EVENTS_EXECUTE]);
    assert_eq!(
        execute.parent_span_id,
        request.span_context.span_id(),
        "the command is a part of the request"
    );

    let reaction = spans[REACTION_RUN].links.iter().next().unwrap();
    assert_eq!(reaction.span_context.trace_id(), request.span_context.trace_id());
    assert_eq!(
        reaction.span_context.span_id(),
        execute.span_context.span_id(),
        "it follows from the command"
    );

    let run = spans[WORKFLOW_RUN];
    let started = run.links.iter().next().unwrap();
    assert_eq!(started.span_context.span_id(), request.span_context.span_id(), "it follows from the start");
    assert_eq!(
        spans[WORKFLOW_STEP].parent_span_id,
        run.span_context.span_id(),
        "the step is a part of the run"
    );
    assert!(spans.contains_key(LOCK_WAIT));
}

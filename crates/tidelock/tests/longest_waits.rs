//! The longest possible durations mean "forever": workers run, and stop on request.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::time::Duration;

use tidelock::outbox::{Delivery, Message, Outbox, Sender};
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, Reactions};
use tidelock::schedule::{Schedule, Scheduler};
use tidelock::workflow::{Ctx, Failure, Worker, Workflow, WorkflowClient};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(20);
const ENDLESS: Duration = Duration::MAX;
const ONE: Workflow<u32, u32> = Workflow::new("one");
const MAILS: Outbox = Outbox::new("mails");

fn store() -> SharedStore {
    Arc::new(MemoryStore::new())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_reactions() {
    let store = store();
    let handler = |_, _| async { Ok::<_, Failure>(Batch::new()) };
    let reactions = Reactions::new(Arc::clone(&store)).shutdown_timeout(ENDLESS).poll_interval(ENDLESS);
    let running = reactions.with(Reaction::new("one").each(handler)).start().await.unwrap();
    let event = NewEvent::new("Came".parse().unwrap(), Payload::null());
    store.apply(Batch::new().append(&Key::single("guests").unwrap(), Expect::Any, [event])).await.unwrap();
    timeout(LONG, running.quiesce()).await.expect("it does not work").unwrap();
    timeout(LONG, running.shutdown()).await.expect("it does not end");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_workflows() {
    let store = store();
    let code = async |_: &Ctx, n: u32| Ok::<_, Failure>(n);
    let worker = Worker::new(Arc::clone(&store)).shutdown_timeout(ENDLESS).poll_interval(ENDLESS);
    let driving = worker.register(ONE, code).start().await.unwrap();
    let run = WorkflowClient::new(store).start(ONE, &7).await.unwrap();
    assert_eq!(timeout(LONG, run.result()).await.expect("it does not work").unwrap(), 7);
    timeout(LONG, driving.shutdown()).await.expect("it does not end");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_schedules() {
    let task = Schedule::new("one").every(Duration::from_millis(100)).timeout(ENDLESS);
    let task = task.run(async |_| Ok::<_, Failure>(Batch::new()));
    let scheduler = Scheduler::new(store()).shutdown_timeout(ENDLESS);
    let running = scheduler.with(task).start().await.unwrap();
    let ran = async {
        while running.stats().runs == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, ran).await.expect("it does not work");
    timeout(LONG, running.shutdown()).await.expect("it does not end");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_outboxes() {
    let store = store();
    let deliver = |_: Delivery| async { Ok::<_, Failure>(()) };
    let sender = Sender::new(Arc::clone(&store), MAILS, deliver).timeout(ENDLESS);
    let sending = sender.shutdown_timeout(ENDLESS).poll_interval(ENDLESS).start().await.unwrap();
    let message = Message::new("a@example.com", "hello").unwrap();
    store.apply(MAILS.put(Batch::new(), &message).unwrap()).await.unwrap();
    let sent = async {
        while sending.stats().delivered == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, sent).await.expect("it does not work");
    timeout(LONG, sending.shutdown()).await.expect("it does not end");
}

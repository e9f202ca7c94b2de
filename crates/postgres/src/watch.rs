//! Hints across processes: LISTEN and NOTIFY on a dedicated connection.
//!
//! A notification is never part of the transaction that it reports: at commit it would take a lock that all databases
//! of the server share. The store sends it afterwards, one at a time, and the next one covers all changes since. It
//! sends none while no other store listens. Each store announces its presence periodically.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidelock_core::store::Watcher;
use tokio::sync::{Notify, mpsc};
use tokio_postgres::AsyncMessage;

use crate::connect::{Connection, Hosts, Profile};
use crate::error::{Failure, Meaning};
use crate::writer::jittered;

/// How often a listener checks whether its host went silent.
const TRUST: Duration = Duration::from_secs(1);
/// The minimum interval between two notifications. The next one covers all changes in between.
const BREATH: Duration = Duration::from_millis(5);
/// How often a store that listens announces its presence.
const HERE: Duration = Duration::from_secs(5);
/// A store without an announcement for this duration counts as gone.
const GONE: Duration = Duration::from_secs(20);
/// The number of names of other stores beyond which the names are forgotten.
const NAMES: usize = 1_000;
/// The prefix of a presence announcement, which is not a hint.
const PRESENT: &str = "here ";
/// The time limit of the server's response.
const SILENCE: Duration = Duration::from_secs(5);
/// How often waiters are woken when notifications are unavailable.
const BLIND: Duration = Duration::from_millis(250);

/// Notifies all listeners of changes.
#[derive(Debug)]
pub(crate) struct Hints {
    watcher: Arc<Watcher>,
    pending: Arc<Notify>,
    others: Arc<Others>,
}

impl Hints {
    pub(crate) fn new(watcher: Arc<Watcher>) -> Self {
        Self { watcher, pending: Arc::default(), others: Arc::default() }
    }

    /// Reports a commit: wakes waiters of this process at once, and those of other processes soon.
    pub(crate) fn changed(&self) {
        self.watcher.hint();
        // Waking a task for nothing costs more than this check.
        if self.others.are_there() {
            self.pending.notify_one();
        }
    }

    pub(crate) fn pending(&self) -> Arc<Notify> {
        Arc::clone(&self.pending)
    }

    pub(crate) fn others(&self) -> Arc<Others> {
        Arc::clone(&self.others)
    }
}

/// The other stores that listen.
#[derive(Debug, Default)]
pub(crate) struct Others {
    known: Mutex<Listeners>,
    /// Signals the first announcement of a store, which needs a response.
    newcomer: Notify,
}

#[derive(Debug, Default)]
struct Listeners {
    names: HashSet<String>,
    last: Option<Instant>,
    assumed: bool,
}

impl Others {
    fn heard(&self, said: &str) {
        let name = said.strip_prefix(PRESENT).unwrap_or(said);
        let mut known = self.known.lock();
        known.last = Some(Instant::now());
        if known.names.len() > NAMES {
            known.names.clear();
        }
        if known.names.insert(name.to_owned()) {
            self.newcomer.notify_one();
        }
    }

    /// Presence cannot be observed without LISTEN, so it is assumed.
    fn assume(&self) {
        self.known.lock().assumed = true;
    }

    fn are_there(&self) -> bool {
        let known = self.known.lock();
        known.assumed || known.last.is_some_and(|last| last.elapsed() < GONE)
    }
}

/// The state of the task that listens and notifies.
pub(crate) struct Telling {
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) profile: Profile,
    pub(crate) channel: String,
    pub(crate) watcher: Arc<Watcher>,
    pub(crate) pending: Arc<Notify>,
    pub(crate) others: Arc<Others>,
    /// Whether listening works. It does not behind a transaction-mode pooler.
    pub(crate) listens: bool,
}

impl Telling {
    /// Listens and notifies until it is stopped, and reconnects whenever the connection is lost.
    pub(crate) async fn run(self) {
        let name = uuid::Uuid::now_v7().to_string();
        let mut pause = Duration::from_millis(50);
        loop {
            match self.connected(&name).await {
                Ok(()) => pause = Duration::from_millis(50),
                Err(failure) => tracing::debug!(error = %failure.error, "hints are interrupted"),
            }
            // Waiters poll while no notification can arrive.
            self.watcher.hint();
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Serves one connection until it is lost.
    async fn connected(&self, name: &str) -> Result<(), Failure> {
        let others = &self.others;
        let (own, watcher, present) = (name.to_owned(), Arc::clone(&self.watcher), Arc::clone(others));
        // Dropped when the connection is lost, which ends `hearing`.
        let (alive, mut hearing) = mpsc::channel::<()>(1);
        let heard = move |message: AsyncMessage| {
            let _alive = &alive;
            let AsyncMessage::Notification(note) = message else { return };
            if note.payload().ends_with(&own) {
                return;
            }
            present.heard(note.payload());
            if !note.payload().starts_with(PRESENT) {
                watcher.hint();
            }
        };
        let client = self
            .hosts
            .connection(&self.profile, heard)
            .await
            .map_err(|error| Failure { error, meaning: Meaning::Unsent })?;
        if self.listens {
            answered(&client, &format!("LISTEN {}", self.channel)).await?;
        } else {
            others.assume();
        }
        // Changes before this connection listened produced no notification.
        self.watcher.hint();
        tokio::select! {
            told = self.notify_others(&client, name, others) => told,
            said = self.say_here(&client, name, others), if self.listens => said,
            _ = hearing.recv() => Ok(()),
            () = self.look_now_and_then(), if !self.listens => Ok(()),
            () = distrusted(&client) => Ok(()),
        }
    }

    async fn notify_others(&self, client: &Connection, name: &str, others: &Others) -> Result<(), Failure> {
        let notify = format!("SELECT pg_notify('{}', '{name}')", self.channel);
        loop {
            self.pending.notified().await;
            if others.are_there() {
                answered(client, &notify).await?;
                tokio::time::sleep(BREATH).await;
            }
        }
    }

    /// Announces periodically that this store listens.
    async fn say_here(&self, client: &Connection, name: &str, others: &Others) -> Result<(), Failure> {
        let say = |word: &str| format!("SELECT pg_notify('{}', '{word}{name}')", self.channel);
        let (here, hint) = (say(PRESENT), say(""));
        answered(client, &here).await?;
        loop {
            tokio::select! {
                () = tokio::time::sleep(HERE) => answered(client, &here).await?,
                // The new store got no notification of the changes before its announcement.
                () = others.newcomer.notified() => answered(client, &hint).await?,
            }
        }
    }

    async fn look_now_and_then(&self) {
        loop {
            tokio::time::sleep(BLIND).await;
            self.watcher.hint();
        }
    }
}

/// Waits until another connection of the store finds the host silent. When the host comes back, it need not be the
/// primary.
async fn distrusted(client: &Connection) {
    while client.is_trusted() {
        tokio::time::sleep(TRUST).await;
    }
}

/// Runs a statement with a time limit: a connection that the network has dropped never responds.
async fn answered(client: &Connection, sql: &str) -> Result<(), Failure> {
    Ok(client.answer(SILENCE, client.batch_execute(sql)).await??)
}

/// A guard that aborts a task when it is dropped.
#[derive(Debug)]
pub(crate) struct Stop(pub(crate) tokio::task::JoinHandle<()>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

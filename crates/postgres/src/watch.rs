//! Hints across processes: LISTEN and NOTIFY on a connection of their own.
//!
//! A notification never rides in the transaction that it tells of: at commit it would take a lock that all databases of
//! the server share. It is sent afterwards, one at a time, and whatever changed in the meantime is told by the next one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_fn;
use tidelock_core::store::Watcher;
use tokio::sync::{Notify, mpsc};
use tokio_postgres::{AsyncMessage, Client};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::address::Address;
use crate::error::Failure;
use crate::writer::jittered;

/// The least time between two notifications: what happens in between is told together.
const BREATH: Duration = Duration::from_millis(2);
/// How long the server may take to answer while connecting.
const SILENCE: Duration = Duration::from_secs(10);
/// How often sleepers are woken when there is no way to hear of changes.
const BLIND: Duration = Duration::from_millis(250);

/// Tells everybody who listens that something changed.
#[derive(Debug)]
pub(crate) struct Hints {
    watcher: Arc<Watcher>,
    pending: Arc<Notify>,
}

impl Hints {
    pub(crate) fn new(watcher: Arc<Watcher>) -> Self {
        Self { watcher, pending: Arc::default() }
    }

    /// Something was committed: wakes sleepers here at once, and those elsewhere soon.
    pub(crate) fn changed(&self) {
        self.watcher.hint();
        self.pending.notify_one();
    }

    pub(crate) fn pending(&self) -> Arc<Notify> {
        Arc::clone(&self.pending)
    }
}

/// What the task that listens and tells needs to know.
pub(crate) struct Telling {
    pub(crate) address: Address,
    pub(crate) connector: MakeRustlsConnect,
    pub(crate) channel: String,
    pub(crate) watcher: Arc<Watcher>,
    pub(crate) pending: Arc<Notify>,
    /// Whether listening works: not behind a transaction-mode pooler.
    pub(crate) listens: bool,
}

impl Telling {
    /// Listens and tells until it is stopped, connecting again whenever the connection is lost.
    pub(crate) async fn run(self) {
        let name = uuid::Uuid::now_v7().to_string();
        let mut pause = Duration::from_millis(50);
        loop {
            match self.connected(&name).await {
                Ok(()) => pause = Duration::from_millis(50),
                Err(failure) => tracing::debug!(error = %failure.error, "hints are interrupted"),
            }
            // Sleepers look for themselves while nobody can tell them.
            self.watcher.hint();
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// One connection, until it is lost.
    async fn connected(&self, name: &str) -> Result<(), Failure> {
        let connecting = self.address.config.connect(self.connector.clone());
        let connected = tokio::time::timeout(SILENCE, connecting).await;
        let (client, mut connection) = connected.map_err(|_| Failure::silent(SILENCE))??;
        let (heard, mut hearing) = mpsc::channel::<()>(1);
        let (own, watcher) = (name.to_owned(), Arc::clone(&self.watcher));
        let driver = tokio::spawn(async move {
            // Dropped when the connection is lost, which ends `hearing`.
            let _alive = heard;
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(note) = message
                    && note.payload() != own
                {
                    watcher.hint();
                }
            }
        });
        let _driver = Stop(driver);
        if self.listens {
            client.batch_execute(&format!("LISTEN {}", self.channel)).await?;
        }
        // What happened before this connection listened was not heard.
        self.watcher.hint();
        tokio::select! {
            told = self.tell(&client, name) => told,
            _ = hearing.recv() => Ok(()),
            () = self.look_now_and_then(), if !self.listens => Ok(()),
        }
    }

    async fn tell(&self, client: &Client, name: &str) -> Result<(), Failure> {
        let notify = format!("SELECT pg_notify('{}', '{name}')", self.channel);
        loop {
            self.pending.notified().await;
            client.batch_execute(&notify).await?;
            tokio::time::sleep(BREATH).await;
        }
    }

    async fn look_now_and_then(&self) {
        loop {
            tokio::time::sleep(BLIND).await;
            self.watcher.hint();
        }
    }
}

/// Stops a task when it goes out of scope.
#[derive(Debug)]
pub(crate) struct Stop(pub(crate) tokio::task::JoinHandle<()>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

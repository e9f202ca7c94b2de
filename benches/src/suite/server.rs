//! The measured PostgreSQL server: the one of `--url`, or a private one that ends with the run.
//!
//! A run works in temporary schemas. A killed process leaves the schemas on a server of `--url`, after printing their names.
//! A private server ends with the process, together with its data.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use anyhow::Result;
use tidelock_console::bench::machine::Machine;
use tidelock_console::bench::server::MeasuredServer;
use tidelock_console::server_url::ServerUrl;
use tidelock_console::usage::UsageError;

use crate::private_server::{self, PrivateServer};

/// The server, with the private process behind it if this run started one.
#[derive(Debug)]
pub(crate) struct BenchServer {
    measured: MeasuredServer,
    private: Option<PrivateServer>,
}

impl BenchServer {
    /// Connects to the server at `url`, or starts a private one with its data below `path`.
    pub(crate) async fn open(url: Option<&str>, path: Option<&Path>) -> Result<Self> {
        let (url, private) = match (url, path) {
            (Some(_), Some(_)) => {
                let reason = "--path is the data directory of a private server, and --url or DATABASE_URL names another; \
                              leave out --path, or leave out --url and unset DATABASE_URL";
                return Err(UsageError(reason.to_owned()).into());
            }
            // Measurements use separate schemas.
            (Some(url), None) => (ServerUrl::parse(url)?.split_schema().0, None),
            (None, path) => {
                eprintln!("no --url and no DATABASE_URL: starting a private server");
                let (url, running) = private_server::start(path).await?;
                (url, Some(running))
            }
        };
        let measured = MeasuredServer::connect(url, private.is_some()).await?;
        Ok(Self { measured, private })
    }

    /// Prints the server and its schemas, unless they end with the run anyway.
    pub(crate) fn announce(&self) {
        if self.private.is_none() {
            self.measured.announce();
        }
    }

    /// Describes the machine and the server.
    pub(crate) fn machine(&self) -> Machine {
        let data = self.private.as_ref().map(PrivateServer::data);
        Machine::with_server(self.measured.settings().clone(), data)
    }

    /// Drops the schemas and ends a private server.
    pub(crate) async fn close(self) {
        self.measured.drop_schemas().await;
        drop(tokio::task::spawn_blocking(move || drop(self.private)).await);
    }
}

impl Deref for BenchServer {
    type Target = MeasuredServer;

    fn deref(&self) -> &MeasuredServer {
        &self.measured
    }
}

impl DerefMut for BenchServer {
    fn deref_mut(&mut self) -> &mut MeasuredServer {
        &mut self.measured
    }
}

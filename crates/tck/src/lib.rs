//! The conformance cases and their runner. This crate accesses backends only through the `Store` contract.

#![doc = include_str!("../README.md")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a kit fails by panicking"
)]

mod builders;
mod clients;
mod conn;
pub mod contract;
pub mod crash;
mod crash_points;
pub mod differential;
mod dump;
pub mod engines;
mod env;
mod expect;
mod fault_proxy;
pub mod history;
pub mod kill_state;
pub mod kill_workflow;
mod ledger;
mod partition;
#[cfg(unix)]
pub mod power_cut;
pub mod process;
mod reacting;
pub mod rng;
mod run;
mod running;
mod scheduling;
pub mod sigstop;
pub mod stress;
pub mod transactions;

/// Imports that nearly every case needs.
pub(crate) mod prelude {
    pub(crate) use std::time::Duration;

    pub(crate) use serde_json::json;
    pub(crate) use tidelock_core::clock::{Due, Timestamp};
    pub(crate) use tidelock_core::error::{Explain as _, InvalidInput, Outcome, Retry};
    pub(crate) use tidelock_core::id::{DocVersion, EventId, OpId, Position, Priority, StreamVersion};
    pub(crate) use tidelock_core::key::{Arg, Key, KeyPrefix};
    pub(crate) use tidelock_core::store::*;

    pub(crate) use crate::builders::*;
    pub(crate) use crate::conn::Conn;
    pub(crate) use crate::dump::Dump;
    pub(crate) use crate::env::Env;
    pub(crate) use crate::expect::*;
}

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use tidelock_core::clock::{Clock, ManualClock};
use tidelock_core::store::Store;

pub use conn::Conn;
pub use dump::Dump;
pub use env::Env;
pub use process::run_child;
pub use run::{print_summary, run_case};

/// A backend under test: a factory of empty databases.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns the name for messages. Two backends in one test program need two names.
    fn name(&self) -> &'static str;

    /// Creates a new, empty database without other users. Its connections use `clock`.
    async fn fresh(&self, clock: Arc<ManualClock>) -> Box<dyn Database>;

    /// Returns the optional features of the backend.
    fn capabilities(&self) -> Capabilities;

    /// Connects to a database that another process created, by the address that [`Database::address`] returned there.
    /// Called only when [`Capabilities::processes`] is set.
    async fn attach(&self, address: &str, clock: Arc<dyn Clock>) -> Arc<dyn Store>;

    /// Closes a connection that [`attach`](Self::attach) opened, and waits until its files are closed. By default it only
    /// drops the connection.
    async fn detach(&self, store: Arc<dyn Store>) {
        drop(store);
    }

    /// Checks the structure of a database that no process has open, with the backend's own means, and panics if it is
    /// damaged. By default there are none.
    async fn inspect(&self, address: &str) {
        let _ = address;
    }
}

/// The optional features of a backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capabilities {
    /// Several processes may share a database.
    pub processes: bool,
    /// Acknowledged writes survive [`Database::restart`].
    pub durable: bool,
    /// The backend stores documents and operation ids, and rejects every other operation as unsupported. Cases that
    /// need more are skipped and report it.
    pub documents_only: bool,
}

/// One database of a backend.
#[async_trait]
pub trait Database: Send + Sync {
    /// Opens another independent connection.
    async fn connect(&self) -> Arc<dyn Store>;

    /// Closes every connection and opens a new one, as a restarted process would.
    async fn restart(&mut self) -> Arc<dyn Store>;

    /// Copies the current state of the database. Returns `false` if the backend cannot do that. Cases about a cut
    /// history are then skipped.
    async fn backup(&self) -> bool {
        false
    }

    /// Replaces the database with the last copy while connections are open, as a failover that loses the newest writes
    /// does. A backend that cannot detect the replacement declares it, as an operator would.
    async fn restore(&self) {}

    /// Returns the address by which another process finds the database.
    fn address(&self) -> Option<String>;
}

/// The future of a running case.
type CaseFuture<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// One case of the kit.
#[derive(Clone, Copy)]
pub struct Case {
    /// The number in the list of conformance cases, for example `T10`. Several cases may share one.
    pub number: &'static str,
    /// The name of the test.
    pub name: &'static str,
    /// Its folder: `contract` for a promise of the backend, `engines` for a promise of an engine on it.
    pub folder: &'static str,
    /// Its file in the folder.
    pub section: &'static str,
    /// The promise that the case checks.
    pub doc: &'static str,
    /// Whether the case needs only documents. The doc comment of such a case ends with `Documents only.`
    pub documents_only: bool,
    /// Whether no other case of the program runs beside it. The doc comment of such a case says `Runs alone.`
    pub alone: bool,
    run: for<'a> fn(&'a Env) -> CaseFuture<'a>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.number, self.name, self.doc)
    }
}

include!(concat!(env!("OUT_DIR"), "/cases.rs"));

/// Runs the cases of the store contract on a backend: one `#[test]` for each case, named with its number.
///
/// The argument is an expression that makes a [`Backend`]; every test makes its own. Two more tests come with them:
/// `tidelock_tck_summary`, which prints the number of cases, and `tidelock_tck_child`, which does nothing unless another test
/// starts it as a child process.
#[macro_export]
macro_rules! contract {
    ($backend:expr) => {
        $crate::child!($backend);
        #[test]
        fn tidelock_tck_summary() {
            $crate::print_summary(&$backend, &["contract"]);
        }
        $crate::contract_tests!($backend);
    };
}

/// Runs the whole kit on a backend: the cases of the [contract](contract!), and those of every engine on it.
#[macro_export]
macro_rules! conformance {
    ($backend:expr) => {
        $crate::child!($backend);
        #[test]
        fn tidelock_tck_summary() {
            $crate::print_summary(&$backend, &["contract", "engines"]);
        }
        $crate::contract_tests!($backend);
        $crate::engine_tests!($backend);
    };
}

/// The test that the kit starts in processes of its own. [`conformance!`] contains it; a test program that calls
/// [`crash::round`], [`kill_state::rounds`] or [`stress`] without the rest of the kit needs this line.
#[macro_export]
macro_rules! child {
    ($backend:expr) => {
        #[test]
        fn tidelock_tck_child() {
            $crate::run_child(::std::boxed::Box::new($backend));
        }
    };
}

/// The page of the book, compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/own-backend.md")]
struct Guide;

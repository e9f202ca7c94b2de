//! Only here: confirmation of a new connection. The server is of the wanted kind and keeps the wanted durability.
//!
//! The server behind an address can change: by a failover, a role setting or a reload. So the store confirms every new
//! connection in one round trip, before its first statement.

use tidelock_core::store::{Durability, StoreError, StoreErrorKind};
use tokio_postgres::Client;
use tokio_postgres::config::TargetSessionAttrs;

use super::Profile;
use crate::error;
use crate::rows::get;

const WHAT: &str = "confirming a connection to PostgreSQL";

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionKind {
    /// A connection that belongs to no store; the server may be a standby unless the address excludes it.
    Plain,
    /// A connection of a store, to a primary that keeps the durability.
    Store(Durability),
}

/// The properties of a confirmed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirmed {
    /// The `synchronous_commit` that the store's transactions need on this server. `None`: any value is sufficient.
    pub(crate) commit: Option<&'static str>,
}

/// Checks a new connection. Every check that each connection of a store must pass belongs here.
pub(super) async fn confirm(
    client: &Client,
    attrs: TargetSessionAttrs,
    profile: &Profile,
) -> Result<Confirmed, StoreError> {
    let sql = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', \
               current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit')";
    let found = client.query_typed(sql, &[]).await.map_err(|e| error::map(WHAT, &e))?;
    let row = found.first().ok_or_else(|| StoreError::new(StoreErrorKind::Bug, WHAT, "no answer"))?;
    check_role(attrs, profile.kind, get(row, 0)?, get(row, 1)?)?;
    let text = |column| get::<String>(row, column);
    let (fsync, pages, commit) = (text(2)?, text(3)?, text(4)?);
    let flushes = fsync == "on" && pages == "on";
    let weakened = profile.commit.is_some_and(|wanted| wanted != commit);
    if weakened || (profile.kind == SessionKind::Store(Durability::Full) && !flushes) {
        let detail = format!(
            "an acknowledged write must be flushed, but the server runs with fsync = {fsync}, full_page_writes = {pages} \
             and synchronous_commit = {commit}; set them on, or open the store with relaxed durability"
        );
        return Err(StoreError::new(StoreErrorKind::SettingNotInForce, WHAT, detail));
    }
    Ok(Confirmed { commit: required_commit(profile.kind, flushes, &commit) })
}

/// Returns the stronger of the server's setting and the store's durability.
fn required_commit(kind: SessionKind, flushes: bool, given: &str) -> Option<&'static str> {
    match kind {
        SessionKind::Plain => None,
        SessionKind::Store(Durability::Full) if given == "remote_apply" => Some("remote_apply"),
        SessionKind::Store(Durability::Full) => Some("on"),
        // A server that never flushes gains nothing from skipping the wait for the flush.
        SessionKind::Store(_) => flushes.then_some("off"),
    }
}

/// Rejects a server with the wrong role.
fn check_role(
    attrs: TargetSessionAttrs,
    kind: SessionKind,
    standby: bool,
    read_only: bool,
) -> Result<(), StoreError> {
    let refuse = |detail: &str| Err(StoreError::new(StoreErrorKind::ReadOnly, WHAT, detail));
    if standby && kind != SessionKind::Plain {
        return refuse("the server is a standby; connect to the primary, or name all hosts in the address");
    }
    match attrs {
        TargetSessionAttrs::ReadWrite if standby => refuse("the server is a standby"),
        TargetSessionAttrs::ReadWrite if read_only => refuse("the database does not allow writes"),
        TargetSessionAttrs::ReadOnly if !read_only => refuse("the database is not read-only"),
        _ => Ok(()),
    }
}

//! Server information and the permissions of the caller.

use axum::Extension;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use tidelock_core::clock::Timestamp;
use tidelock_core::store::Durability;

use crate::app_state::App;
use crate::openapi::shape;
use crate::request::{Answered, ok};
use crate::token::{Caller, Role};

#[derive(Serialize, JsonSchema)]
pub(crate) struct Info {
    version: &'static str,
    /// The name of the caller in the audit stream.
    caller: String,
    #[schemars(extend("enum" = ["open", "read", "write"]))]
    role: &'static str,
    /// Whether the caller may write. That depends on its role and on the options of the server.
    writes: bool,
    backend: String,
    engine: String,
    schema: u32,
    #[schemars(with = "String")]
    durability: Durability,
    /// Whether the program shows its locks here.
    locks: bool,
    /// Whether the program shows its state conflicts here.
    conflicts: bool,
    #[schemars(with = "shape::Timestamp")]
    now: Timestamp,
}

/// Returns information about the server and the permissions of the caller.
pub(crate) async fn info(State(app): State<App>, Extension(caller): Extension<Caller>) -> Answered {
    let info = app.store().info().await?;
    ok(&Info {
        version: env!("CARGO_PKG_VERSION"),
        role: caller.role.word(),
        writes: app.options.writes && caller.role == Role::Write,
        caller: caller.name,
        backend: info.backend,
        engine: info.engine,
        schema: info.schema,
        durability: info.durability,
        locks: app.inspected.locks.get().is_some(),
        conflicts: app.inspected.conflicts.get().is_some(),
        now: app.store().now().await?,
    })
}

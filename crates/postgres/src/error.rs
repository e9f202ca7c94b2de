//! Mapping of driver errors to store errors, and their meaning for a transaction. No other module does either.

use deadpool::managed::PoolError;
use tidelock_core::store::{StoreError, StoreErrorKind};
use tokio_postgres::error::{DbError, Severity};

use crate::connect;

/// The consequence of a failure for the transaction that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A row was not as the writer believed. Nothing was written; reload the row and decide again.
    Stale,
    /// The estimate of the server's clock was wrong. Nothing was written; read the clock and decide again.
    Clock,
    /// The history of the database was cut, or may have been. Nothing was written; confirm the epoch and decide again.
    Epoch,
    /// An event id is taken. Nothing was written; look up its owner and decide again.
    TakenEventId,
    /// Another transaction holds a row that is needed. Nothing was written.
    Locked,
    /// The server rolled the transaction back: a deadlock, a serialization conflict or a cancelled statement. Nothing was
    /// written; retry.
    Again,
    /// The connection was lost before any write was sent.
    Unsent,
    /// The connection was lost; the transaction may have been committed.
    Lost,
    /// The connection is open, but the failure does not prove a rollback. The transaction may have been committed.
    Unclear,
    /// Any other failure that proves a rollback. Nothing was written.
    Failed,
}

impl Meaning {
    /// Returns whether the transaction may have been committed. Its batches are then never applied again.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Lost | Self::Unclear)
    }
}

/// A failure on its way to the caller.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: StoreError,
    pub(crate) meaning: Meaning,
}

impl Failure {
    pub(crate) fn new(kind: StoreErrorKind, what: &str, detail: impl Into<String>) -> Self {
        Self { error: StoreError::new(kind, what, detail), meaning: Meaning::Failed }
    }

    /// A row differs from the believed row, and nothing was written.
    pub(crate) fn stale() -> Self {
        let error = StoreError::new(StoreErrorKind::Busy, "writing a batch", "a row changed in between");
        Self { error, meaning: Meaning::Stale }
    }

    /// The server cannot be reached, and nothing was sent.
    pub(crate) fn unreachable(detail: impl Into<String>) -> Self {
        let error = StoreError::new(StoreErrorKind::Unreachable, "connecting to PostgreSQL", detail);
        Self { error, meaning: Meaning::Unsent }
    }

    /// Returns the same failure, met before any write was sent.
    pub(crate) fn unsent(self) -> Self {
        match self.meaning {
            Meaning::Lost => Self { meaning: Meaning::Unsent, ..self },
            Meaning::Unclear => Self { meaning: Meaning::Failed, ..self },
            _ => self,
        }
    }

    /// Returns the same failure, met after the response to the statement that commits.
    pub(crate) fn after_commit(self) -> Self {
        Self { meaning: Meaning::Unclear, ..self }
    }

    /// The connection went silent while a request was in flight.
    pub(crate) fn silent(after: std::time::Duration) -> Self {
        let detail = format!("no answer for {after:?}");
        Self { error: StoreError::new(StoreErrorKind::Unreachable, WHAT, detail), meaning: Meaning::Lost }
    }
}

const WHAT: &str = "using the PostgreSQL database";

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self { meaning: meaning(&error), error: map(WHAT, &error) }
    }
}

#[cfg(feature = "sqlx")]
impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        let report =
            error.as_database_error().and_then(|error| error.try_downcast_ref()).map(Report::of_sqlx);
        match report {
            Some(report) => Self {
                meaning: meaning_of(report.severity, report.code, report.constraint),
                error: StoreError::new(report.kind(), WHAT, report.describe()),
            },
            None => {
                let io =
                    matches!(error, sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::WorkerCrashed);
                let kind = if io { StoreErrorKind::Unreachable } else { StoreErrorKind::Bug };
                Self { meaning: Meaning::Lost, error: StoreError::new(kind, WHAT, chain(&error)) }
            }
        }
    }
}

impl From<PoolError<StoreError>> for Failure {
    fn from(error: PoolError<StoreError>) -> Self {
        match error {
            PoolError::Backend(error) => {
                let refused = connect::is_final(error.kind);
                Self { meaning: if refused { Meaning::Failed } else { Meaning::Unsent }, error }
            }
            PoolError::Closed => Self::new(StoreErrorKind::Closed, WHAT, "the store was closed"),
            other => Self::unreachable(format!("no connection became free: {other}")),
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// A failure before any write was sent.
impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self { error, meaning: Meaning::Failed }
    }
}

/// Input that only the backend can validate is rejected like any other.
impl From<tidelock_core::error::InvalidInput> for Failure {
    fn from(input: tidelock_core::error::InvalidInput) -> Self {
        Self { error: input.into(), meaning: Meaning::Failed }
    }
}

/// Maps a driver error.
pub(crate) fn map(what: &str, error: &tokio_postgres::Error) -> StoreError {
    StoreError::new(kind(error), what, describe(error))
}

/// Returns the server's message, without values that its own detail may quote from rows.
fn describe(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| chain(error), |error| Report::of(error).describe())
}

/// Returns the message of an error with those of its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// An error response of the server, whichever driver received it.
struct Report<'a> {
    severity: Option<Severity>,
    code: &'a str,
    message: &'a str,
    constraint: Option<&'a str>,
}

impl<'a> Report<'a> {
    fn of(error: &'a DbError) -> Self {
        Self {
            severity: error.parsed_severity(),
            code: error.code().code(),
            message: error.message(),
            constraint: error.constraint(),
        }
    }

    #[cfg(feature = "sqlx")]
    fn of_sqlx(error: &'a sqlx::postgres::PgDatabaseError) -> Self {
        use sqlx::postgres::PgSeverity;
        let severity = match error.severity() {
            PgSeverity::Panic => Severity::Panic,
            PgSeverity::Fatal => Severity::Fatal,
            _ => Severity::Error,
        };
        let (code, message, constraint) = (error.code(), error.message(), error.constraint());
        Self { severity: Some(severity), code, message, constraint }
    }

    fn describe(&self) -> String {
        let Self { code, message, .. } = self;
        if self.is_foreign_session() {
            return format!(
                "{message} (SQLSTATE {code}); a pooler in transaction mode seems to be in between: \
                 add pooler=transaction to the address"
            );
        }
        format!("{message} (SQLSTATE {code})")
    }

    /// Returns whether a prepared statement is missing, or exists already: another session prepared it.
    fn is_foreign_session(&self) -> bool {
        matches!(self.code, "26000" | "42P05")
            || (self.code == "08P01" && self.message.contains("startup parameter"))
    }

    fn kind(&self) -> StoreErrorKind {
        if self.is_foreign_session() {
            return StoreErrorKind::CannotOpen;
        }
        match self.code {
            "53100" | "54023" => return StoreErrorKind::Full,
            "25006" | "TL002" => return StoreErrorKind::ReadOnly,
            "55P03" | "57014" | "40001" | "40P01" | "53300" | "23505" | "TL001" | "TL003" | "TL004" => {
                return StoreErrorKind::Busy;
            }
            // The caller's transaction has failed or is over.
            "25P01" | "25P02" => return StoreErrorKind::TransactionConflict,
            "42501" => return StoreErrorKind::CannotOpen,
            "3F000" | "42P01" | "42883" => return StoreErrorKind::Migration,
            "58030" => return StoreErrorKind::Io,
            _ => {}
        }
        match self.code.get(..2) {
            Some("08" | "57") => StoreErrorKind::Unreachable,
            Some("28" | "3D") => StoreErrorKind::CannotOpen,
            Some("XX") => StoreErrorKind::Corrupt,
            Some("53") => StoreErrorKind::Busy,
            _ => StoreErrorKind::Bug,
        }
    }
}

fn kind(error: &tokio_postgres::Error) -> StoreErrorKind {
    match error.as_db_error() {
        Some(error) => Report::of(error).kind(),
        None if is_connection(error) => StoreErrorKind::Unreachable,
        None => StoreErrorKind::Bug,
    }
}

fn is_connection(error: &tokio_postgres::Error) -> bool {
    error.is_closed() || has_io_source(error)
}

fn has_io_source(error: &tokio_postgres::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if cause.is::<std::io::Error>() {
            return true;
        }
        source = cause.source();
    }
    false
}

/// Returns the meaning of a failure for the transaction that met it.
pub(crate) fn meaning(error: &tokio_postgres::Error) -> Meaning {
    match error.as_db_error() {
        Some(db) => {
            let Report { severity, code, constraint, .. } = Report::of(db);
            meaning_of(severity, code, constraint)
        }
        // The connection failed, or the driver could not decode the response.
        None => Meaning::Lost,
    }
}

/// Classes of SQLSTATE that a server raises inside a statement, and only before the transaction is committed.
///
/// An error of these classes with the severity ERROR proves that the server rolled the transaction back. The list names
/// the classes that are known to be harmless. Everything else leaves the outcome open: connection errors (08), operator
/// intervention (57) other than a cancelled statement, system and internal errors (58, XX), and unknown classes.
const ROLLED_BACK: &[&str] = &[
    "0A", // a feature that is not supported, such as a cached plan that no longer fits
    "21", "22", "23", // cardinality, data exceptions, constraints
    "25", "26", // a transaction that is read only or has failed, a prepared statement that is missing
    "28", "2F", "38", "39", // authorization, functions
    "3D", "3F", "42", "44", // names, syntax, permissions
    "53", "54", "55", // resources, limits, objects in use and locks
    "P0", "TL", // raised by PL/pgSQL, and by the functions of the schema
];

/// SQLSTATEs of classes that are not harmless as a whole.
const ROLLED_BACK_STATES: &[&str] = &["40000", "40001", "40002", "40P01", "57014"];

/// Returns the meaning of an error response, by its fields `V`, `C` and `n`.
///
/// Servers send `V` since PostgreSQL 9.6. A response without it comes from a program in between, such as PgBouncer, which
/// uses any SQLSTATE and does not know whether the server committed.
fn meaning_of(severity: Option<Severity>, code: &str, constraint: Option<&str>) -> Meaning {
    let class = code.get(..2).unwrap_or_default();
    match (severity, code) {
        (Some(Severity::Error), "40001" | "40P01" | "57014") => Meaning::Again,
        (Some(Severity::Error), "55P03") => Meaning::Locked,
        (Some(Severity::Error), "23505") if constraint == Some("events_id") => Meaning::TakenEventId,
        (Some(Severity::Error), "23505" | "TL001") => Meaning::Stale,
        (Some(Severity::Error), "TL003") => Meaning::Clock,
        (Some(Severity::Error), "TL004") => Meaning::Epoch,
        (Some(Severity::Error), _) if ROLLED_BACK.contains(&class) || ROLLED_BACK_STATES.contains(&code) => {
            Meaning::Failed
        }
        // Codes of a connection that ends, whatever their severity is.
        (Some(Severity::Error), _) if class != "08" && !code.starts_with("57P") => Meaning::Unclear,
        // FATAL and PANIC end the connection, perhaps after the commit.
        _ => Meaning::Lost,
    }
}

#[cfg(test)]
mod tests;

//! Only here: the statements, with the name of the schema filled in once. SQLite has its tables in one place.

use tidelock_core::store::{StoreError, StoreErrorKind};
use tokio_postgres::types::Type;

use crate::rows;

/// The statements that the writers use again and again.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) schema: String,
    pub(crate) write_streams: String,
    pub(crate) write_documents: String,
    pub(crate) write_work: String,
    pub(crate) write_operations: String,
    pub(crate) lock_streams: String,
    pub(crate) lock_documents: String,
    pub(crate) lock_work: String,
    pub(crate) operations: String,
    pub(crate) events_by_id: String,
    pub(crate) numbers: String,
    pub(crate) candidates: String,
    pub(crate) next_ready: String,
    pub(crate) following: String,
    pub(crate) matching_work: String,
}

/// The condition of a filter on work rows, with its parameters: lane, pattern, blocked, leased.
pub(crate) const WORK_FILTER: &str = "($1::text IS NULL OR lane = $1) AND ($2::text IS NULL OR key LIKE $2) \
    AND ($3::boolean IS NULL OR $3 = (blocked_since IS NOT NULL)) \
    AND ($4::boolean IS NULL OR $4 = (lease_owner IS NOT NULL))";

/// The types of the parameters of [`WORK_FILTER`].
pub(crate) const WORK_FILTER_TYPES: [Type; 4] = [Type::TEXT, Type::TEXT, Type::BOOL, Type::BOOL];

impl Sql {
    /// The statements for a schema whose name was checked.
    pub(crate) fn new(schema: &str) -> Self {
        let s = schema;
        let (streams, documents) = (rows::STREAM_COLUMNS, rows::DOCUMENT_COLUMNS);
        let (work, events) = (rows::WORK_COLUMNS, rows::EVENT_COLUMNS);
        Self {
            schema: s.to_owned(),
            write_streams: format!("SELECT server_now, drawn FROM {s}.write_streams({})", parameters(21)),
            write_documents: format!("SELECT server_now FROM {s}.write_documents({})", parameters(19)),
            write_work: format!("SELECT server_now, seqs, fences FROM {s}.write_work({})", parameters(35)),
            write_operations: format!("SELECT {s}.write_operations({})", parameters(5)),
            lock_streams: format!("SELECT {streams} FROM {s}.lock_streams($1)"),
            lock_documents: format!("SELECT {documents} FROM {s}.lock_documents($1)"),
            lock_work: format!("SELECT {work} FROM {s}.lock_work($1)"),
            operations: format!("SELECT id, receipt, positions FROM {s}.operations WHERE id = ANY ($1)"),
            events_by_id: format!("SELECT {events} FROM {s}.events e WHERE e.id = ANY ($1)"),
            numbers: format!(
                "SELECT {s}.clock(), coalesce(pg_sequence_last_value('{s}.fences'), 0), \
                 (SELECT document FROM {s}.floors)"
            ),
            candidates: format!("SELECT {work} FROM {s}.candidates($1, $2, $3)"),
            next_ready: format!("SELECT {s}.next_ready($1, $2)"),
            following: format!(
                "SELECT {events} FROM {s}.events e WHERE e.stream = $1 AND e.version > coalesce(( \
                 SELECT h.version FROM {s}.events h WHERE h.stream = $1 AND h.position <= $2 \
                 ORDER BY h.version DESC LIMIT 1), -1) ORDER BY e.version LIMIT $3"
            ),
            matching_work: format!("SELECT key FROM {s}.work WHERE {WORK_FILTER} ORDER BY key LIMIT $5"),
        }
    }

    /// Where hints are sent and heard.
    pub(crate) fn channel(&self) -> String {
        format!("tidelock_{}", self.schema)
    }
}

fn parameters(count: usize) -> String {
    let numbered: Vec<String> = (1..=count).map(|n| format!("${n}")).collect();
    numbered.join(", ")
}

/// Checks the name of a schema: it becomes a part of statements, so only plain names are taken.
pub(crate) fn check_schema(name: &str) -> Result<(), StoreError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins_well = name.chars().next().is_some_and(|c| plain(c) && !c.is_ascii_digit());
    // The channel of hints carries the name behind a prefix, and PostgreSQL's names end at 63 bytes.
    if begins_well && name.len() <= 50 && name.chars().all(plain) && !name.starts_with("pg_") {
        return Ok(());
    }
    let detail = format!(
        "the schema {name:?} is not a plain name: 1 to 50 small letters, digits and underscores, \
         not beginning with a digit or pg_"
    );
    Err(StoreError::new(StoreErrorKind::Invalid, "opening the PostgreSQL store", detail))
}

//! Only here: the SQL statements, with the name of the schema filled in once. SQLite has its tables in one place.

use tidelock_core::store::{StoreError, StoreErrorKind};

use crate::rows;

/// The statements that the writers run repeatedly.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) schema: String,
    /// One statement for each combination of parts, by the sum of its [`Part`]s.
    writes: Vec<String>,
    /// Appends one event to an open stream if its head is as believed, and returns the clock. Returns no row otherwise.
    pub(crate) append_one: String,
    /// The same for a batch that also guards a lease. Fails as stale when the work row has changed.
    pub(crate) append_guarded: String,
    pub(crate) lock_streams: String,
    pub(crate) lock_documents: String,
    pub(crate) lock_work: String,
    pub(crate) operations: String,
    pub(crate) resolve: String,
    pub(crate) events_by_id: String,
    pub(crate) numbers: String,
    /// Returns which database this is.
    pub(crate) identity: String,
    pub(crate) candidates: String,
    pub(crate) lock_candidates: String,
    pub(crate) next_ready: String,
    /// Returns the given instant, or else the server's clock.
    pub(crate) now: String,
    pub(crate) following: String,
}

impl Sql {
    /// Builds the statements for a schema whose name was checked.
    pub(crate) fn new(schema: &str) -> Self {
        let s = schema;
        let (streams, documents) = (rows::STREAM_COLUMNS, rows::DOCUMENT_COLUMNS);
        let (work, events) = (rows::WORK_COLUMNS, rows::EVENT_COLUMNS);
        Self {
            schema: s.to_owned(),
            writes: (0..32).map(|parts| write(s, parts)).collect(),
            append_one: append_one(s, None),
            append_guarded: append_one(s, Some(GUARD)),
            lock_streams: format!("SELECT {streams} FROM {s}.lock_streams($1)"),
            lock_documents: format!("SELECT {documents} FROM {s}.lock_documents($1)"),
            lock_work: format!("SELECT {work} FROM {s}.lock_work($1)"),
            operations: format!("SELECT op_id, receipt, positions FROM {s}.receipts WHERE op_id = ANY ($1)"),
            resolve: format!("SELECT op_id, receipt, positions FROM {s}.resolve($1, $2, $3, $4)"),
            events_by_id: format!("SELECT {events} FROM {s}.events e WHERE e.id = ANY ($1)"),
            numbers: format!(
                "SELECT {s}.clock(), coalesce(pg_sequence_last_value('{s}.fences'), 0), \
                 (SELECT document FROM {s}.floors)"
            ),
            identity: format!("SELECT {s}.identity()"),
            candidates: format!("SELECT {work} FROM {s}.candidates($1, $2, $3, $4, $5, $6, $7)"),
            lock_candidates: format!("SELECT {work} FROM {s}.lock_candidates($1, $2)"),
            next_ready: format!("SELECT {s}.next_ready($1, $2, $3, $4, $5)"),
            now: format!("SELECT coalesce($1, {s}.clock())"),
            following: format!(
                "SELECT {events} FROM (SELECT *, sum(bytes) OVER (ORDER BY version) AS total FROM (\
                 SELECT * FROM {s}.events e WHERE e.stream = $1 AND e.version >= (SELECT {s}.version_after($1, $2)) \
                 ORDER BY e.stream, e.version LIMIT $3) e) e WHERE e.total - e.bytes < $4 ORDER BY e.version"
            ),
        }
    }

    /// Returns the statement that writes these parts.
    pub(crate) fn write(&self, parts: &[Part]) -> &str {
        let sum: usize = parts.iter().map(|part| *part as usize).sum();
        self.writes.get(sum).map_or("", String::as_str)
    }

    /// Returns the NOTIFY channel of hints.
    pub(crate) fn channel(&self) -> String {
        format!("tidelock_{}", self.schema)
    }
}

/// The parts that a group may write. Their functions are called in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Streams = 1,
    Documents = 2,
    Work = 4,
    Operations = 8,
    Truncations = 16,
}

/// Each part with its function, the number of parameters after the first, and the column that it passes to the next.
const WRITES: [(Part, &str, usize, &str); 5] = [
    (Part::Streams, "write_streams", 23, "server_now"),
    (Part::Documents, "write_documents", 21, "server_now"),
    (Part::Work, "write_work", 37, "server_now"),
    (Part::Operations, "write_receipts", 7, "recorded"),
    (Part::Truncations, "truncate_streams", 3, "removed"),
];

/// Builds one statement that calls the functions of the parts, each with the result of the previous one. They therefore
/// run in order, and all or none of them take effect, without a transaction around them.
fn write(schema: &str, parts: usize) -> String {
    let (mut from, mut number, mut before) = (String::new(), 0, "0::bigint".to_owned());
    for (part, function, parameters, answer) in WRITES {
        if parts & part as usize == 0 {
            continue;
        }
        let numbered: Vec<String> = (1..=parameters).map(|n| format!("${}", number + n)).collect();
        let joint = if from.is_empty() { "" } else { " CROSS JOIN LATERAL " };
        from.push_str(&format!("{joint}{schema}.{function}({before}, {}) {function}", numbered.join(", ")));
        before = format!("{function}.{answer}");
        number += parameters;
    }
    let column = |part: Part, name: &str, missing: &str| {
        if parts & part as usize == 0 { missing.to_owned() } else { name.to_owned() }
    };
    let now = WRITES.iter().take(3).find(|(part, ..)| parts & *part as usize != 0);
    let now = now.map_or("NULL::bigint".to_owned(), |(_, function, ..)| format!("{function}.server_now"));
    let drawn = column(Part::Streams, "write_streams.drawn", "NULL::bigint[]");
    let seqs = column(Part::Work, "write_work.seqs", "NULL::bigint[]");
    let fences = column(Part::Work, "write_work.fences", "NULL::bigint[]");
    let from = if from.is_empty() { "(SELECT) nothing" } else { &from };
    format!("SELECT {now}, {drawn}, {seqs}, {fences} FROM {from}")
}

/// Compares a work row and locks it, after the stream: the order of every writer. The comparison raises an error, because
/// a statement that returns no row would still update the stream.
const GUARD: &str = "guarded AS MATERIALIZED (SELECT held.key, CASE WHEN w.key IS NULL THEN {schema}.stale('work row') END \
     FROM held LEFT JOIN LATERAL (SELECT key FROM {schema}.work WHERE key = $13 AND seq = $14 AND revision = $15 \
         FOR UPDATE) w ON true), ";

/// The statement locks the head, advertises the last position, and then draws the next one: the order of
/// `draw_positions`.
fn append_one(schema: &str, guard: Option<&str>) -> String {
    let (s, guarded) = (schema, guard.unwrap_or_default().replace("{schema}", schema));
    let locked = if guard.is_some() { "guarded" } else { "held" };
    format!(
        "WITH held AS (UPDATE {s}.streams SET head = $3 WHERE key = $1 AND head = $2 AND closed_at IS NULL \
             AND {s}.clock() BETWEEN $4 AND $5 AND EXISTS (SELECT FROM {s}.epoch WHERE epoch = $12 AND (timeline IS NULL \
                 OR timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))) RETURNING key), {guarded}\
         advertised AS MATERIALIZED (SELECT key, pg_advisory_xact_lock_shared('{s}.positions'::regclass::oid::int, \
             coalesce(pg_sequence_last_value('{s}.positions'), -1)::bit(32)::int) FROM {locked}) \
         INSERT INTO {s}.events (position, stream, version, id, type, recorded_at, payload, meta, correlation, bytes) \
             SELECT nextval('{s}.positions'), key, $3, $6, $7, $8, $9::json, $10::json, $11, \
                 octet_length($9) + coalesce(octet_length($10), 4) FROM advertised \
         RETURNING {s}.clock(), ARRAY[position], NULL::bigint[], NULL::bigint[]"
    )
}

/// Words that PostgreSQL does not accept as a name without quotes.
const RESERVED: &str = "all analyse analyze and any array as asc asymmetric authorization binary both case cast check \
    collate collation column concurrently constraint create cross current_catalog current_date current_role \
    current_schema current_time current_timestamp current_user default deferrable desc distinct do else end except \
    false fetch for foreign freeze from full grant group having ilike in initially inner intersect into is isnull \
    join lateral leading left like limit localtime localtimestamp natural not notnull null offset on only or order \
    outer overlaps placing primary references returning right select session_user similar some symmetric system_user \
    table tablesample then to trailing true union unique user using variadic verbose when where window with";

/// Checks the name of a schema. The name becomes a part of statements, so only plain names are accepted.
pub(crate) fn check_schema(name: &str) -> Result<(), StoreError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins_well = name.chars().next().is_some_and(|c| plain(c) && !c.is_ascii_digit());
    // The channel of hints carries the name behind a prefix, and PostgreSQL's names end at 63 bytes.
    let plain = begins_well && name.len() <= 50 && name.chars().all(plain) && !name.starts_with("pg_");
    if plain && !RESERVED.split_whitespace().any(|word| word == name) {
        return Ok(());
    }
    let detail = format!(
        "the schema {name:?} is not a plain name: 1 to 50 small letters, digits and underscores, \
         not beginning with a digit or pg_, and not a word of SQL"
    );
    Err(StoreError::new(StoreErrorKind::Invalid, "opening the PostgreSQL store", detail))
}

-- Events, documents and work. All names begin with tidelock_, so that a program may keep its own tables in the same file.
-- Instants are microseconds since the Unix epoch. Keys are the canonical text of tidelock_core::key. Payloads are JSON.

-- first_version is the lowest version that truncation left, or one above the last when no event is left.
CREATE TABLE tidelock_streams (
    id            INTEGER PRIMARY KEY,
    key           TEXT NOT NULL UNIQUE,
    closed_at     INTEGER,
    first_version INTEGER NOT NULL DEFAULT 0
) STRICT;

-- A commit appends to this table and updates the index by id. There is no head row and no index by stream, because either
-- would be another page to write for every stream of a group commit.
CREATE TABLE tidelock_events (
    position    INTEGER PRIMARY KEY,
    stream      INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    id          BLOB NOT NULL,
    type        TEXT NOT NULL,
    recorded_at INTEGER NOT NULL,
    payload     TEXT NOT NULL,
    meta        TEXT,
    correlation TEXT
) STRICT;
CREATE UNIQUE INDEX tidelock_events_by_id ON tidelock_events (id);
CREATE INDEX tidelock_events_by_correlation ON tidelock_events (correlation) WHERE correlation IS NOT NULL;

-- The positions of the events of a stream. The index is complete up to the counter 'indexed'. Later events, a few thousand at
-- most, are the tail: every process keeps it in memory, and the writer merges it into this table in key order.
CREATE TABLE tidelock_stream_index (
    stream   INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (stream, version)
) STRICT, WITHOUT ROWID;

-- A deleted document keeps its row and its version, without a value (tombstone).
CREATE TABLE tidelock_documents (
    key        TEXT NOT NULL PRIMARY KEY,
    version    INTEGER NOT NULL,
    value      TEXT,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER
) STRICT;
CREATE INDEX tidelock_documents_by_expiry ON tidelock_documents (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX tidelock_documents_deleted ON tidelock_documents (updated_at) WHERE value IS NULL;
-- Index documents move from range to range and leave a tombstone each time. Lists and counts skip tombstones with this index.
CREATE INDEX tidelock_documents_index ON tidelock_documents (key, expires_at)
    WHERE key >= 'tidelock.index' AND key < 'tidelock.index$' AND value IS NOT NULL;

-- ready_at is the earliest time of a claim; NULL while the row is blocked or has no due time.
CREATE TABLE tidelock_work (
    seq              INTEGER PRIMARY KEY,
    key              TEXT NOT NULL,
    queue            TEXT NOT NULL,
    priority         INTEGER NOT NULL,
    recurring        INTEGER NOT NULL,
    ready_at         INTEGER,
    due_at           INTEGER,
    wake_at          INTEGER,
    position         INTEGER,
    follows          TEXT,
    payload          TEXT NOT NULL,
    attempts         INTEGER NOT NULL,
    takeovers        INTEGER NOT NULL,
    last_error       TEXT,
    blocked_reason   TEXT,
    blocked_at       INTEGER,
    lease_owner      TEXT,
    lease_fence      INTEGER,
    leased_at        INTEGER,
    lease_expires_at INTEGER,
    enqueued_at      INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX tidelock_work_by_key ON tidelock_work (key);
CREATE INDEX tidelock_work_by_queue ON tidelock_work (queue, key);
CREATE INDEX tidelock_work_ready ON tidelock_work (queue, priority, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX tidelock_work_blocked ON tidelock_work (key) WHERE blocked_reason IS NOT NULL;
CREATE INDEX tidelock_work_leased ON tidelock_work (key) WHERE lease_owner IS NOT NULL;

-- Receipts of operations, so that a repeated operation gets its first result. An operation that was resolved as not applied
-- has a row without a receipt; its id is void.
CREATE TABLE tidelock_receipts (
    id          INTEGER PRIMARY KEY,
    op_id       BLOB NOT NULL UNIQUE,
    recorded_at INTEGER NOT NULL,
    receipt     TEXT
) STRICT;
CREATE INDEX tidelock_receipts_by_time ON tidelock_receipts (recorded_at);

CREATE TABLE tidelock_counters (
    name  TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- 'position' is the highest position in use at the last truncation, so that no position is assigned twice. 'truncations'
-- counts truncations: a process rebuilds its in-memory tail when the count has changed. 'clock' is the time of the latest
-- commit in microseconds: a process whose clock is behind continues from it. 'epoch' is the generation of the history. It is
-- set when the file is first opened, with 'inode' and 'born_at', which identify the file: a file that differs is a copy.
INSERT INTO tidelock_counters (name, value)
VALUES ('fence', 0), ('document_floor', 0), ('indexed', 0), ('position', 0), ('truncations', 0), ('clock', 0),
    ('epoch', 0);

-- Cuts of the history: events after cut_after were lost, and the first position of the new epoch is resumes_at.
CREATE TABLE tidelock_history_cuts (
    epoch       INTEGER PRIMARY KEY,
    previous    INTEGER NOT NULL,
    cut_after   INTEGER NOT NULL,
    resumes_at  INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    declared_at INTEGER NOT NULL,
    reason      TEXT NOT NULL
) STRICT;

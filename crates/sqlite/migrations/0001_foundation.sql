-- Facts, state and work. All names begin with tidelock_, so that a program may keep its own tables in the same file.
-- Instants are microseconds since the epoch. Keys are the canonical text of tidelock_core::key. Payloads are JSON.

CREATE TABLE tidelock_streams (
    no        INTEGER PRIMARY KEY,
    key       TEXT NOT NULL UNIQUE,
    closed_at INTEGER
) STRICT;

-- A commit only adds at the end of this table and of the index by id. There is no head row, and no index by stream:
-- that would be another page to write for every stream that a group of commits touches.
CREATE TABLE tidelock_events (
    position    INTEGER PRIMARY KEY,
    stream      INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    id          BLOB NOT NULL,
    type        TEXT NOT NULL,
    at          INTEGER NOT NULL,
    payload     TEXT NOT NULL,
    meta        TEXT,
    correlation TEXT
) STRICT;
CREATE UNIQUE INDEX tidelock_events_by_id ON tidelock_events (id);
CREATE INDEX tidelock_events_by_correlation ON tidelock_events (correlation) WHERE correlation IS NOT NULL;

-- Where the events of a stream stand. It is complete for positions up to the counter 'indexed'; the events beyond, a few
-- thousand at most, are the tail, which every process keeps in memory and the writer merges in here, neighbours together.
CREATE TABLE tidelock_stream_index (
    stream   INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (stream, version)
) STRICT, WITHOUT ROWID;

-- A deleted document keeps its row without a value, and with it its version.
CREATE TABLE tidelock_documents (
    key        TEXT NOT NULL PRIMARY KEY,
    version    INTEGER NOT NULL,
    value      TEXT,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER
) STRICT;
CREATE INDEX tidelock_documents_by_expiry ON tidelock_documents (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX tidelock_documents_gone ON tidelock_documents (updated_at) WHERE value IS NULL;

-- ready_at is the fact that claims go by: from when on the row may be had; NULL while it is blocked or rests.
CREATE TABLE tidelock_work (
    seq            INTEGER PRIMARY KEY,
    key            TEXT NOT NULL UNIQUE,
    lane           TEXT NOT NULL,
    priority       INTEGER NOT NULL,
    standing       INTEGER NOT NULL,
    ready_at       INTEGER,
    due            INTEGER,
    woken          INTEGER,
    position       INTEGER,
    follow         TEXT,
    payload        TEXT NOT NULL,
    attempts       INTEGER NOT NULL,
    takeovers      INTEGER NOT NULL,
    last_error     TEXT,
    blocked_reason TEXT,
    blocked_since  INTEGER,
    lease_owner    TEXT,
    lease_fence    INTEGER,
    lease_since    INTEGER,
    lease_until    INTEGER,
    enqueued_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX tidelock_work_ready ON tidelock_work (lane, priority, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX tidelock_work_blocked ON tidelock_work (key) WHERE blocked_reason IS NOT NULL;

-- Rows are written in order of time, so that the oldest are those with the lowest numbers.
CREATE TABLE tidelock_operations (
    no      INTEGER PRIMARY KEY,
    id      BLOB NOT NULL UNIQUE,
    at      INTEGER NOT NULL,
    receipt TEXT NOT NULL
) STRICT;

CREATE TABLE tidelock_counters (
    name  TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO tidelock_counters (name, value) VALUES ('fence', 0), ('document_floor', 0), ('indexed', 0);

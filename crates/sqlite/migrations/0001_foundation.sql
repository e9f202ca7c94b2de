-- Facts, state and work. All names begin with tidelock_, so that a program may keep its own tables in the same file.
-- Instants are microseconds since the epoch. Keys are the canonical text of tidelock_core::key. Payloads are JSON.

-- first_version is the lowest version that truncation left; one above the last when none is left.
CREATE TABLE tidelock_streams (
    no            INTEGER PRIMARY KEY,
    key           TEXT NOT NULL UNIQUE,
    closed_at     INTEGER,
    first_version INTEGER NOT NULL DEFAULT 0
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
-- Index documents move from range to range, and leave a tombstone each time. Lists and counts of them skip those by this one.
CREATE INDEX tidelock_documents_index ON tidelock_documents (key, expires_at)
    WHERE key >= 'tidelock.index' AND key < 'tidelock.index$' AND value IS NOT NULL;

-- ready_at is the fact that claims go by: from when on the row may be had; NULL while it is blocked or rests.
CREATE TABLE tidelock_work (
    seq            INTEGER PRIMARY KEY,
    key            TEXT NOT NULL,
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
CREATE UNIQUE INDEX tidelock_work_by_key ON tidelock_work (key);
CREATE INDEX tidelock_work_by_lane ON tidelock_work (lane, key);
CREATE INDEX tidelock_work_ready ON tidelock_work (lane, priority, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX tidelock_work_blocked ON tidelock_work (key) WHERE blocked_reason IS NOT NULL;
CREATE INDEX tidelock_work_leased ON tidelock_work (key) WHERE lease_owner IS NOT NULL;

-- The outcome of operations. An operation that was resolved as not applied has no receipt; its id is void.
CREATE TABLE tidelock_operations (
    no      INTEGER PRIMARY KEY,
    id      BLOB NOT NULL UNIQUE,
    at      INTEGER NOT NULL,
    receipt TEXT
) STRICT;
CREATE INDEX tidelock_operations_by_time ON tidelock_operations (at);

CREATE TABLE tidelock_counters (
    name  TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- 'position' is the highest position in use at the last truncation, so that no position is assigned twice. 'truncations'
-- counts truncations: a process rebuilds its in-memory tail when the count has changed. 'clock' is the latest time by which a
-- commit went, in microseconds: a process whose clock is behind continues from it.
-- 'epoch' is the generation of the history. It is set, and 'inode' and 'born_at' are added, when the file is first opened: a
-- file that differs from them is a copy.
INSERT INTO tidelock_counters (name, value)
VALUES ('fence', 0), ('document_floor', 0), ('indexed', 0), ('position', 0), ('truncations', 0), ('clock', 0),
    ('epoch', 0);

-- Where the history was cut: events after cut_after were lost, and the first position of the new epoch is resumes_at.
CREATE TABLE tidelock_epochs (
    epoch       INTEGER PRIMARY KEY,
    previous    INTEGER NOT NULL,
    cut_after   INTEGER NOT NULL,
    resumes_at  INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    declared_at INTEGER NOT NULL,
    reason      TEXT NOT NULL
) STRICT;

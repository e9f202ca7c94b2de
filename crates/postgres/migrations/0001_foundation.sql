-- Events, documents and work, in a schema of their own. {schema} is its name.
--
-- Instants are microseconds since the Unix epoch. Keys are the canonical text of tidelock_core::key. Payloads are JSON,
-- kept byte for byte; bytes is their size. Positions, fences and seqs come from sequences whose number 0 is already used.
--
-- Tables with much churn are vacuumed after a number of dead rows, because a share of a large table would take too long.
-- The vacuum of the work table runs without cost delay, because claims scan the dead rows that it leaves.
--
-- Lock order of every writer: streams, documents, work, receipts; within each, existing rows before new rows, and keys in
-- ascending order. The order rules out deadlocks between writers.

-- first_version is the lowest version that truncation left, or head + 1 when no event is left.
CREATE TABLE {schema}.streams (
    key           text COLLATE "C" CONSTRAINT streams_key PRIMARY KEY,
    head          bigint,
    closed_at     bigint,
    first_version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 80);

CREATE SEQUENCE {schema}.positions MINVALUE 0 START 0;
SELECT setval('{schema}.positions', 0, true);

CREATE TABLE {schema}.events (
    position    bigint CONSTRAINT events_position PRIMARY KEY,
    stream      text COLLATE "C" NOT NULL,
    version     bigint NOT NULL,
    id          uuid NOT NULL CONSTRAINT events_id UNIQUE,
    type        text COLLATE "C" NOT NULL,
    recorded_at bigint NOT NULL,
    payload     json NOT NULL,
    meta        json,
    correlation text COLLATE "C",
    bytes       bigint NOT NULL,
    CONSTRAINT events_stream UNIQUE (stream, version)
);
CREATE INDEX events_correlation ON {schema}.events (correlation, position) WHERE correlation IS NOT NULL;

-- A deleted document keeps its row and its version, without a value (tombstone). Only columns that rarely change are
-- indexed, so that updates are HOT.
CREATE TABLE {schema}.documents (
    key        text COLLATE "C" CONSTRAINT documents_key PRIMARY KEY,
    version    bigint NOT NULL,
    value      json,
    updated_at bigint NOT NULL,
    expires_at bigint,
    deleted_at bigint,
    bytes      bigint NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000);
CREATE INDEX documents_expiry ON {schema}.documents (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX documents_deleted ON {schema}.documents (deleted_at) WHERE deleted_at IS NOT NULL;
-- Lists skip tombstones with this index.
CREATE INDEX documents_live ON {schema}.documents (key) WHERE deleted_at IS NULL;

-- document: new documents start above this version, because tombstones up to it were swept.
-- position: the highest position that truncation removed from the end of the log.
CREATE TABLE {schema}.floors (document bigint NOT NULL, position bigint NOT NULL);
INSERT INTO {schema}.floors VALUES (0, 0);

CREATE SEQUENCE {schema}.work_seqs MINVALUE 0 START 0;
SELECT setval('{schema}.work_seqs', 0, true);
CREATE SEQUENCE {schema}.fences MINVALUE 0 START 0;
SELECT setval('{schema}.fences', 0, true);

-- ready_at is the earliest time of a claim; NULL while the row is blocked or has no due time. Renewing a lease leaves it
-- unchanged, so that a renewal touches no index; the next claim that scans such a row corrects it.
CREATE TABLE {schema}.work (
    key              text COLLATE "C" CONSTRAINT work_key PRIMARY KEY,
    seq              bigint NOT NULL,
    revision         bigint NOT NULL,
    queue            text COLLATE "C" NOT NULL,
    priority         smallint NOT NULL,
    recurring        boolean NOT NULL,
    ready_at         bigint,
    due_at           bigint,
    wake_at          bigint,
    position         bigint,
    follows          text COLLATE "C",
    payload          json NOT NULL,
    attempts         bigint NOT NULL,
    takeovers        bigint NOT NULL,
    last_error       text,
    blocked_reason   text,
    blocked_at       bigint,
    lease_owner      text,
    lease_fence      bigint,
    leased_at        bigint,
    lease_expires_at bigint,
    enqueued_at      bigint NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX work_ready ON {schema}.work (queue, priority, ready_at, seq) WHERE ready_at IS NOT NULL;
CREATE INDEX work_blocked ON {schema}.work (key) WHERE blocked_at IS NOT NULL;
CREATE INDEX work_leased ON {schema}.work (key) WHERE lease_owner IS NOT NULL;
CREATE INDEX work_by_queue ON {schema}.work (queue, key);

-- Receipts of operations, so that a repeated operation gets its first result. An operation that was resolved as not applied
-- has a row without a receipt; its id is void.
CREATE TABLE {schema}.receipts (
    op_id       uuid CONSTRAINT receipts_op_id PRIMARY KEY,
    recorded_at bigint NOT NULL,
    receipt     text,
    positions   bigint[]
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX receipts_recorded_at ON {schema}.receipts (recorded_at);

-- The server's clock.
CREATE FUNCTION {schema}.clock() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- The epoch: the generation of the history, with the timeline of the server and the identity of the database. The table has
-- one row. Every writer reads it, which locks the table against a new epoch until the transaction ends. A new epoch
-- truncates the table, so that a writer with an old snapshot finds no row and fails.
CREATE TABLE {schema}.epoch (
    epoch    bigint NOT NULL,
    timeline text,
    identity text NOT NULL
);

-- Cuts of the history: events after cut_after were lost, and the first position of the new epoch is resumes_at.
CREATE TABLE {schema}.history_cuts (
    epoch       bigint CONSTRAINT history_cuts_epoch PRIMARY KEY,
    previous    bigint NOT NULL,
    cut_after   bigint NOT NULL,
    resumes_at  bigint NOT NULL,
    fence       bigint NOT NULL,
    declared_at bigint NOT NULL,
    reason      text NOT NULL
);

-- The timeline of the server, which every promotion changes. NULL where the server does not expose it.
CREATE FUNCTION {schema}.timeline() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- The identity of the database: the cluster, and the OID of the table, which changes when a dump is restored.
CREATE FUNCTION {schema}.identity() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    cluster text;
BEGIN
    BEGIN
        SELECT system_identifier::text INTO cluster FROM pg_control_system();
    EXCEPTION WHEN OTHERS THEN
        cluster := '';
    END;
    RETURN cluster || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())::text
        || '/' || '{schema}.epoch'::regclass::oid::text;
END $$;

INSERT INTO {schema}.epoch VALUES ({schema}.clock(), {schema}.timeline(), {schema}.identity());

-- Fails unless p_epoch is the current epoch and the server is still on its timeline. Without p_epoch, checks the timeline
-- only.
CREATE FUNCTION {schema}.check_epoch(p_epoch bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    is_epoch    bigint;
    is_timeline text;
BEGIN
    SELECT epoch, timeline INTO is_epoch, is_timeline FROM {schema}.epoch;
    IF is_epoch IS NULL OR is_epoch <> p_epoch
        OR (is_timeline IS NOT NULL AND is_timeline <> left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))
    THEN
        RAISE EXCEPTION 'tidelock: the history of the database may have been cut'
            USING ERRCODE = 'TL004', HINT = 'call {schema}.confirm_epoch() in a transaction of its own, then try again';
    END IF;
END $$;

-- The reason why the history must have been cut, or NULL. p_position and p_fence are the highest that the caller has seen.
CREATE FUNCTION {schema}.cut_reason(p_position bigint, p_fence bigint) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    is_timeline text;
    is_identity text;
BEGIN
    SELECT timeline, identity INTO is_timeline, is_identity FROM {schema}.epoch;
    RETURN CASE
        WHEN is_identity IS NULL THEN 'no epoch is recorded'
        WHEN is_identity <> {schema}.identity() THEN 'the database is a copy of the one that was written last'
        WHEN is_timeline IS DISTINCT FROM {schema}.timeline() THEN 'the server is on another timeline'
        WHEN p_position > coalesce(pg_sequence_last_value('{schema}.positions'), 0)
            OR p_fence > coalesce(pg_sequence_last_value('{schema}.fences'), 0)
            THEN 'the database lost transactions that were committed' END;
END $$;

-- A number above all that were drawn, here or in a lost history. A margin alone repeats when one backup is restored twice;
-- the clock does not.
CREATE FUNCTION {schema}.ahead(numbers regclass, p_known bigint) RETURNS bigint LANGUAGE sql VOLATILE
RETURN greatest(greatest(coalesce(pg_sequence_last_value(numbers), 0), p_known) + 1073741824, {schema}.clock());

-- Begins a new epoch. No writer is in flight during the call, because each holds a lock on the table.
CREATE FUNCTION {schema}.begin_epoch(p_reason text, p_position bigint, p_fence bigint) RETURNS {schema}.history_cuts
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog SET lock_timeout = '250ms' AS $$
DECLARE
    cut {schema}.history_cuts;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('tidelock epoch {schema}', 0));
    LOCK TABLE {schema}.epoch IN ACCESS EXCLUSIVE MODE;
    SELECT coalesce(max(known), 0) INTO cut.previous FROM (
        SELECT epoch FROM {schema}.epoch UNION ALL SELECT epoch FROM {schema}.history_cuts) all_epochs (known);
    cut.epoch := greatest(cut.previous + 1, {schema}.clock());
    SELECT greatest(coalesce(max(position), 0), (SELECT max(position) FROM {schema}.floors)) INTO cut.cut_after
        FROM {schema}.events;
    cut.resumes_at := {schema}.ahead('{schema}.positions', greatest(p_position, cut.cut_after)) + 1;
    cut.fence := {schema}.ahead('{schema}.fences', p_fence);
    cut.declared_at := {schema}.clock();
    cut.reason := p_reason;
    INSERT INTO {schema}.history_cuts SELECT cut.*;
    TRUNCATE {schema}.epoch;
    INSERT INTO {schema}.epoch VALUES (cut.epoch, {schema}.timeline(), {schema}.identity());
    -- Sequences are not transactional: a rollback leaves them moved, which is safe.
    PERFORM setval('{schema}.positions', cut.resumes_at - 1), setval('{schema}.fences', cut.fence),
        setval('{schema}.work_seqs', {schema}.ahead('{schema}.work_seqs', 0));
    RETURN cut;
END $$;
REVOKE ALL ON FUNCTION {schema}.begin_epoch(text, bigint, bigint) FROM PUBLIC;

-- Returns the current epoch. Begins a new one when the history must have been cut.
CREATE FUNCTION {schema}.confirm_epoch(p_position bigint DEFAULT 0, p_fence bigint DEFAULT 0) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog SET lock_timeout = '250ms' AS $$
DECLARE
    reason text;
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN (SELECT epoch FROM {schema}.epoch);
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('tidelock epoch {schema}', 0));
    reason := {schema}.cut_reason(p_position, p_fence);
    IF reason IS NOT NULL THEN
        RETURN ({schema}.begin_epoch(reason, p_position, p_fence)).epoch;
    END IF;
    RETURN (SELECT epoch FROM {schema}.epoch);
END $$;

-- Reports that a row differs from the assumption of the writer. Rolls its transaction back.
CREATE FUNCTION {schema}.stale(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'tidelock: a % changed in between', what USING ERRCODE = 'TL001';
END $$;

-- Sets synchronous_commit for this transaction, for sessions that the store does not own. remote_apply is stronger than on,
-- so it is kept.
CREATE FUNCTION {schema}.set_flush(p_flush text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF p_flush IS NOT NULL AND (p_flush <> 'on' OR current_setting('synchronous_commit') <> 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', p_flush, true);
    END IF;
END $$;

-- Returns the server's clock after a check of the epoch. Fails when the writer decided with a wrong estimate of the clock,
-- so that it decides again. p_flush is passed to set_flush.
CREATE FUNCTION {schema}.check_clock(p_now bigint, p_flush text, p_epoch bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    server_now bigint := {schema}.clock();
BEGIN
    PERFORM {schema}.check_epoch(p_epoch);
    PERFORM {schema}.set_flush(p_flush);
    IF p_now > server_now + 1000 OR p_now < server_now - 1000000 THEN
        RAISE EXCEPTION 'tidelock: the clock was misjudged by % microseconds', p_now - server_now
            USING ERRCODE = 'TL003';
    END IF;
    RETURN server_now;
END $$;

-- Draws numbers from a sequence, in order.
CREATE FUNCTION {schema}.draw(numbers regclass, amount bigint) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    drawn bigint[] := '{}';
BEGIN
    FOR i IN 1 .. amount LOOP
        drawn[i] := nextval(numbers);
    END LOOP;
    RETURN drawn;
END $$;

-- Draws positions for events while the heads of their streams are locked, so that positions and versions agree. Before
-- that, it advertises the last position that was drawn, until the transaction ends: every event of this transaction is
-- above it. Readers stop at the lowest advertisement (see ceiling).
CREATE FUNCTION {schema}.draw_positions(amount bigint) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Once for each transaction: the first advertisement is the lowest, and locks are few. A rolled back savepoint undoes
    -- lock and setting together. The setting holds the transaction id, so that a value of the session or role is ignored.
    IF current_setting('tidelock.{schema}', true) IS DISTINCT FROM pg_current_xact_id()::text THEN
        PERFORM pg_advisory_xact_lock_shared('{schema}.positions'::regclass::oid::int,
            coalesce(pg_sequence_last_value('{schema}.positions'), -1)::bit(32)::int);
        PERFORM set_config('tidelock.{schema}', pg_current_xact_id()::text, true);
    END IF;
    RETURN {schema}.draw('{schema}.positions'::regclass, amount);
END $$;

-- The last position that may be read: the highest visible position, or the lowest advertisement if that is lower. The two
-- statements run in this order, and a later third one must read the page. Also returns the highest position ever drawn,
-- and the cut of the history that lost p_after, if any.
CREATE FUNCTION {schema}.ceiling(p_epoch bigint, p_after bigint, OUT ceiling bigint, OUT highest bigint,
    OUT cut {schema}.history_cuts) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    visible bigint;
    lowest  bigint;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'tidelock: cannot read the log on a standby: it does not see the locks of writers'
            USING ERRCODE = 'TL002';
    END IF;
    PERFORM {schema}.check_epoch(p_epoch);
    highest := coalesce(pg_sequence_last_value('{schema}.positions'), 0);
    SELECT coalesce(max(position), 0) INTO visible FROM {schema}.events;
    -- A lock carries the lower 32 bits of a position; concurrent writers are never that far apart.
    SELECT min(highest + (objid::bigint - highest)::bit(32)::int) INTO lowest FROM pg_locks
        WHERE locktype = 'advisory' AND classid = '{schema}.positions'::regclass::oid AND objsubid = 2
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    ceiling := least(visible, lowest);
    SELECT * INTO cut FROM {schema}.history_cuts c WHERE c.cut_after < p_after AND c.resumes_at > p_after LIMIT 1;
END $$;

-- Writes streams and their events, if every row matches the assumptions of the writer (optimistic concurrency). Prefixes of
-- the arguments: g_ rows are only compared, u_ are updated, c_ are created, a_ must be absent. Inserting and deleting a_pin
-- keeps a_ absent until the end of the transaction. Returns the positions.
-- p_after takes the result of the previous function: one statement calls them all, and the dependency fixes their order.
-- The settings force index scans, regardless of the size of a table when the plan was made.
CREATE FUNCTION {schema}.write_streams(
    p_after bigint, p_now bigint, p_flush text, p_epoch bigint,
    g_key text[], g_head bigint[], g_closed bigint[],
    u_key text[], u_head bigint[], u_new bigint[], u_closed bigint[],
    c_key text[], c_head bigint[], c_closed bigint[],
    a_key text[], a_pin text[],
    e_stream text[], e_version bigint[], e_id uuid[], e_type text[], e_recorded_at bigint[],
    e_payload text[], e_meta text[], e_correlation text[],
    OUT server_now bigint, OUT drawn bigint[]) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms' AS $$
DECLARE
    found_rows bigint;
BEGIN
    server_now := {schema}.check_clock(p_now, p_flush, p_epoch);
    IF cardinality(g_key) > 0 THEN
        PERFORM 1 FROM {schema}.streams WHERE key = ANY (g_key || u_key) ORDER BY key FOR UPDATE;
        SELECT count(*) INTO found_rows FROM unnest(g_key, g_head, g_closed) g (key, head, closed)
            JOIN {schema}.streams s ON s.key = g.key AND s.head IS NOT DISTINCT FROM g.head
                AND s.closed_at IS NOT DISTINCT FROM g.closed;
        IF found_rows <> cardinality(g_key) THEN
            PERFORM {schema}.stale('stream');
        END IF;
    END IF;
    IF cardinality(u_key) > 0 THEN
        UPDATE {schema}.streams s SET head = u.new, closed_at = u.closed
            FROM unnest(u_key, u_head, u_new, u_closed) u (key, head, new, closed)
            WHERE s.key = u.key AND s.head = u.head AND s.closed_at IS NULL;
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        IF found_rows <> cardinality(u_key) THEN
            PERFORM {schema}.stale('stream');
        END IF;
    END IF;
    IF cardinality(c_key) > 0 THEN
        INSERT INTO {schema}.streams (key, head, closed_at) SELECT * FROM unnest(c_key, c_head, c_closed);
    END IF;
    IF cardinality(a_key) > 0 THEN
        INSERT INTO {schema}.streams (key) SELECT unnest(a_pin);
        DELETE FROM {schema}.streams WHERE key = ANY (a_pin);
        IF EXISTS (SELECT FROM {schema}.streams WHERE key = ANY (a_key)) THEN
            PERFORM {schema}.stale('stream');
        END IF;
    END IF;
    IF cardinality(e_stream) > 0 THEN
        drawn := {schema}.draw_positions(cardinality(e_stream));
        INSERT INTO {schema}.events (position, stream, version, id, type, recorded_at, payload, meta, correlation, bytes)
            SELECT e.position, e.stream, e.version, e.id, e.type, e.recorded_at, e.payload::json, e.meta::json, e.correlation,
                octet_length(e.payload) + coalesce(octet_length(e.meta), 4)
            FROM unnest(drawn, e_stream, e_version, e_id, e_type, e_recorded_at, e_payload, e_meta, e_correlation)
                e (position, stream, version, id, type, recorded_at, payload, meta, correlation);
    END IF;
END $$;

-- Writes documents, under the rules of write_streams. Versions are never reused, so a version identifies the content of a row
-- except for a swept value: a tombstone is expected as the negated version. The floor is read after the rows: a writer that
-- saw a row missing sees the floor that was raised before the row was swept.
CREATE FUNCTION {schema}.write_documents(
    p_after bigint, p_now bigint, p_flush text, p_epoch bigint, p_floor bigint,
    g_key text[], g_version bigint[],
    u_key text[], u_was bigint[], u_version bigint[], u_value text[], u_updated bigint[], u_expires bigint[],
    u_deleted bigint[],
    c_key text[], c_version bigint[], c_value text[], c_updated bigint[], c_expires bigint[], c_deleted bigint[],
    a_key text[], a_pin text[],
    OUT server_now bigint) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms' AS $$
DECLARE
    found_rows bigint;
BEGIN
    server_now := {schema}.check_clock(p_now, p_flush, p_epoch);
    IF cardinality(g_key) > 0 THEN
        PERFORM 1 FROM {schema}.documents WHERE key = ANY (g_key || u_key) ORDER BY key FOR UPDATE;
        SELECT count(*) INTO found_rows FROM unnest(g_key, g_version) g (key, version)
            JOIN {schema}.documents d ON d.key = g.key
                AND CASE WHEN d.deleted_at IS NULL THEN d.version ELSE -d.version END = g.version;
        IF found_rows <> cardinality(g_key) THEN
            PERFORM {schema}.stale('document');
        END IF;
    END IF;
    IF cardinality(u_key) > 0 THEN
        UPDATE {schema}.documents d SET version = u.version, value = u.value::json, updated_at = u.updated,
                expires_at = u.expires, deleted_at = u.deleted, bytes = coalesce(octet_length(u.value), 0)
            FROM unnest(u_key, u_was, u_version, u_value, u_updated, u_expires, u_deleted)
                u (key, was, version, value, updated, expires, deleted)
            WHERE d.key = u.key AND CASE WHEN d.deleted_at IS NULL THEN d.version ELSE -d.version END = u.was;
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        IF found_rows <> cardinality(u_key) THEN
            PERFORM {schema}.stale('document');
        END IF;
    END IF;
    IF cardinality(c_key) > 0 THEN
        INSERT INTO {schema}.documents (key, version, value, updated_at, expires_at, deleted_at, bytes)
            SELECT c.key, c.version, c.value::json, c.updated, c.expires, c.deleted, coalesce(octet_length(c.value), 0)
            FROM unnest(c_key, c_version, c_value, c_updated, c_expires, c_deleted)
                c (key, version, value, updated, expires, deleted);
    END IF;
    IF cardinality(a_key) > 0 THEN
        INSERT INTO {schema}.documents (key, version, updated_at, bytes) SELECT unnest(a_pin), 0, 0, 0;
        DELETE FROM {schema}.documents WHERE key = ANY (a_pin);
        IF EXISTS (SELECT FROM {schema}.documents WHERE key = ANY (a_key)) THEN
            PERFORM {schema}.stale('document');
        END IF;
    END IF;
    IF cardinality(c_key) > 0 OR cardinality(a_key) > 0 THEN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            -- An old snapshot shows an old floor. The lock fails if there is a newer one.
            PERFORM 1 FROM {schema}.floors FOR SHARE;
        END IF;
        IF p_floor <> (SELECT document FROM {schema}.floors) THEN
            PERFORM {schema}.stale('floor');
        END IF;
    END IF;
END $$;

-- Writes work rows, under the rules of write_streams. A row is identified by its seq and revision. w_ rows are written, and
-- created when w_was_seq is NULL. w_new_seq and w_new_fence are 1-based indexes into the numbers that are drawn here;
-- without one, the current seq and the given fence are kept.
CREATE FUNCTION {schema}.write_work(
    p_after bigint, p_now bigint, p_flush text, p_epoch bigint, p_seqs bigint, p_fences bigint,
    g_key text[], g_seq bigint[], g_revision bigint[],
    d_key text[], d_seq bigint[], d_revision bigint[],
    w_key text[], w_was_seq bigint[], w_was_revision bigint[], w_new_seq bigint[],
    w_queue text[], w_priority smallint[], w_recurring boolean[], w_ready_at bigint[], w_due_at bigint[],
    w_wake_at bigint[], w_position bigint[], w_follows text[], w_payload text[], w_attempts bigint[], w_takeovers bigint[],
    w_last_error text[], w_blocked_reason text[], w_blocked_at bigint[],
    w_lease_owner text[], w_lease_fence bigint[], w_new_fence bigint[], w_leased_at bigint[],
    w_lease_expires_at bigint[], w_enqueued_at bigint[],
    a_key text[], a_pin text[],
    OUT server_now bigint, OUT seqs bigint[], OUT fences bigint[]) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms' AS $$
DECLARE
    found_rows bigint;
    made       bigint;
BEGIN
    server_now := {schema}.check_clock(p_now, p_flush, p_epoch);
    made := (SELECT count(*) FROM unnest(w_was_seq) was WHERE was IS NULL);
    IF cardinality(g_key) > 0 OR (cardinality(d_key) > 0 AND cardinality(w_key) > made) THEN
        PERFORM 1 FROM {schema}.work WHERE key = ANY (g_key || d_key || w_key) ORDER BY key FOR UPDATE;
        SELECT count(*) INTO found_rows FROM unnest(g_key, g_seq, g_revision) g (key, seq, revision)
            JOIN {schema}.work w ON w.key = g.key AND w.seq = g.seq AND w.revision = g.revision;
        IF found_rows <> cardinality(g_key) THEN
            PERFORM {schema}.stale('work row');
        END IF;
    END IF;
    IF cardinality(d_key) > 0 THEN
        DELETE FROM {schema}.work w USING unnest(d_key, d_seq, d_revision) d (key, seq, revision)
            WHERE w.key = d.key AND w.seq = d.seq AND w.revision = d.revision;
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        IF found_rows <> cardinality(d_key) THEN
            PERFORM {schema}.stale('work row');
        END IF;
    END IF;
    IF p_seqs > 0 THEN
        seqs := {schema}.draw('{schema}.work_seqs'::regclass, p_seqs);
    END IF;
    -- Fences are drawn while every row that gets one is locked, so that they rise for each row. An insert locks a new row.
    IF p_fences > 0 AND made = 0 THEN
        fences := {schema}.draw('{schema}.fences'::regclass, p_fences);
    END IF;
    IF cardinality(w_key) > made THEN
        UPDATE {schema}.work w SET seq = coalesce(seqs[u.new_seq], w.seq), revision = w.revision + 1, queue = u.queue,
                priority = u.priority, recurring = u.recurring,
                -- A renewal of the same lease leaves the index entry unchanged.
                ready_at = CASE WHEN w.lease_fence = u.lease_fence AND w.ready_at <= u.ready_at THEN w.ready_at
                    ELSE u.ready_at END,
                due_at = u.due_at, wake_at = u.wake_at, position = u.position, follows = u.follows,
                payload = coalesce(u.payload::json, w.payload), attempts = u.attempts, takeovers = u.takeovers,
                last_error = u.last_error, blocked_reason = u.blocked_reason, blocked_at = u.blocked_at,
                lease_owner = u.lease_owner, lease_fence = coalesce(fences[u.new_fence], u.lease_fence),
                leased_at = u.leased_at, lease_expires_at = u.lease_expires_at, enqueued_at = u.enqueued_at
            FROM unnest(w_key, w_was_seq, w_was_revision, w_new_seq, w_queue, w_priority, w_recurring, w_ready_at,
                    w_due_at, w_wake_at, w_position, w_follows, w_payload, w_attempts, w_takeovers, w_last_error,
                    w_blocked_reason, w_blocked_at, w_lease_owner, w_lease_fence, w_new_fence, w_leased_at, w_lease_expires_at,
                    w_enqueued_at)
                u (key, was_seq, was_revision, new_seq, queue, priority, recurring, ready_at, due_at, wake_at,
                    position, follows, payload, attempts, takeovers, last_error, blocked_reason, blocked_at, lease_owner,
                    lease_fence, new_fence, leased_at, lease_expires_at, enqueued_at)
            WHERE w.key = u.key AND w.seq = u.was_seq AND w.revision = u.was_revision;
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        IF found_rows <> cardinality(w_key) - made THEN
            PERFORM {schema}.stale('work row');
        END IF;
    END IF;
    IF made > 0 THEN
        INSERT INTO {schema}.work (key, seq, revision, queue, priority, recurring, ready_at, due_at, wake_at, position,
                follows, payload, attempts, takeovers, last_error, blocked_reason, blocked_at, lease_owner, lease_fence,
                leased_at, lease_expires_at, enqueued_at)
            SELECT c.key, seqs[c.new_seq], 0, c.queue, c.priority, c.recurring, c.ready_at, c.due_at, c.wake_at, c.position,
                c.follows, c.payload::json, c.attempts, c.takeovers, c.last_error, c.blocked_reason, c.blocked_at,
                c.lease_owner, c.lease_fence, c.leased_at, c.lease_expires_at, c.enqueued_at
            FROM unnest(w_key, w_was_seq, w_was_revision, w_new_seq, w_queue, w_priority, w_recurring, w_ready_at,
                    w_due_at, w_wake_at, w_position, w_follows, w_payload, w_attempts, w_takeovers, w_last_error,
                    w_blocked_reason, w_blocked_at, w_lease_owner, w_lease_fence, w_new_fence, w_leased_at, w_lease_expires_at,
                    w_enqueued_at)
                c (key, was_seq, was_revision, new_seq, queue, priority, recurring, ready_at, due_at, wake_at,
                    position, follows, payload, attempts, takeovers, last_error, blocked_reason, blocked_at, lease_owner,
                    lease_fence, new_fence, leased_at, lease_expires_at, enqueued_at)
            WHERE c.was_seq IS NULL;
        IF p_fences > 0 THEN
            fences := {schema}.draw('{schema}.fences'::regclass, p_fences);
            UPDATE {schema}.work w SET lease_fence = fences[n.new_fence] FROM unnest(w_key, w_new_fence) n (key, new_fence)
                WHERE w.key = n.key AND n.new_fence IS NOT NULL;
        END IF;
    END IF;
    IF cardinality(a_key) > 0 THEN
        INSERT INTO {schema}.work (key, seq, revision, queue, priority, recurring, payload, attempts, takeovers, enqueued_at)
            SELECT unnest(a_pin), 0, 0, '', 0, false, 'null', 0, 0, 0;
        DELETE FROM {schema}.work WHERE key = ANY (a_pin);
        IF EXISTS (SELECT FROM {schema}.work WHERE key = ANY (a_key)) THEN
            PERFORM {schema}.stale('work row');
        END IF;
    END IF;
END $$;

-- Records the receipts of batches that have an operation id, with the positions of their events. p_of is the index of the
-- operation that an event belongs to.
CREATE FUNCTION {schema}.write_receipts(
    p_after bigint, p_flush text, p_epoch bigint, p_op_id uuid[], p_recorded_at bigint[], p_receipt text[], p_event uuid[],
    p_of bigint[], OUT recorded bigint) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms' AS $$
BEGIN
    PERFORM {schema}.check_epoch(p_epoch);
    PERFORM {schema}.set_flush(p_flush);
    INSERT INTO {schema}.receipts (op_id, recorded_at, receipt, positions)
    SELECT o.op_id, o.recorded_at, o.receipt, (
        -- Sorting by an expression: for sorted input, PostgreSQL 16 would otherwise scan the whole log in order of position.
        SELECT array_agg(e.position ORDER BY e.position + 0)
        FROM unnest(p_event, p_of) w (id, operation) JOIN {schema}.events e ON e.id = w.id WHERE w.operation = o.n)
    FROM unnest(p_op_id, p_recorded_at, p_receipt) WITH ORDINALITY o (op_id, recorded_at, receipt, n);
    recorded := cardinality(p_op_id);
END $$;

-- Returns the receipt of an operation. An id without a receipt becomes void. Waits at most p_wait for a transaction that is
-- writing a receipt under the id, which the unique index detects.
CREATE FUNCTION {schema}.resolve(p_op_id uuid, p_now bigint, p_wait text, p_flush text)
RETURNS SETOF {schema}.receipts LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM set_config('lock_timeout', p_wait, true);
    IF p_flush IS NOT NULL THEN
        PERFORM set_config('synchronous_commit', p_flush, true);
    END IF;
    INSERT INTO {schema}.receipts (op_id, recorded_at) VALUES (p_op_id, coalesce(p_now, {schema}.clock()))
        ON CONFLICT ON CONSTRAINT receipts_op_id DO NOTHING;
    RETURN QUERY SELECT * FROM {schema}.receipts r WHERE r.op_id = p_op_id;
END $$;

-- Lock rows by their keys until the transaction ends.
CREATE FUNCTION {schema}.lock_streams(p_key text[]) RETURNS SETOF {schema}.streams LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY SELECT * FROM {schema}.streams s WHERE s.key = ANY (p_key) ORDER BY s.key FOR UPDATE;
END $$;

CREATE FUNCTION {schema}.lock_documents(p_key text[]) RETURNS SETOF {schema}.documents LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY SELECT * FROM {schema}.documents d WHERE d.key = ANY (p_key) ORDER BY d.key FOR UPDATE;
END $$;

CREATE FUNCTION {schema}.lock_work(p_key text[]) RETURNS SETOF {schema}.work LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY SELECT * FROM {schema}.work w WHERE w.key = ANY (p_key) ORDER BY w.key FOR UPDATE;
END $$;

-- A row that a claim may be granted, read without a lock. ordinal is the 1-based index of its level among those scanned.
CREATE TYPE {schema}.candidate AS (ordinal integer, key text, ready_at bigint, seq bigint, lease_expires_at bigint);

-- Returns the ordinals of levels that hold rows, with one index seek each. p_queue names every queue ten times, once for
-- each level from 0 on. The seeks meet dead index entries at the end of a level, so only claimers that met few of them
-- before call this.
CREATE FUNCTION {schema}.used_levels(p_queue text[]) RETURNS integer[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    level  smallint;
    levels integer[] := '{}';
BEGIN
    FOR base IN 1 .. cardinality(p_queue) BY 10 LOOP
        level := 10;
        LOOP
            SELECT w.priority INTO level FROM {schema}.work w
                WHERE w.queue = p_queue[base] AND w.priority < level AND w.ready_at IS NOT NULL
                ORDER BY w.queue DESC, w.priority DESC LIMIT 1;
            EXIT WHEN NOT FOUND;
            levels := levels || (base + level);
        END LOOP;
    END LOOP;
    RETURN levels;
END $$;

-- Moves the index entries of rows with renewed leases to the expiry of their leases, many at a time.
CREATE FUNCTION {schema}.move_lagging(p_queue text, p_level smallint, p_from bigint, p_now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE {schema}.work w SET ready_at = greatest(b.ready_at, b.lease_expires_at)
        FROM (SELECT l.key, l.ready_at, l.lease_expires_at FROM {schema}.work l
            WHERE l.queue = p_queue AND l.priority = p_level
                AND l.ready_at >= p_from AND l.ready_at <= p_now AND l.lease_expires_at > p_now
            ORDER BY l.queue, l.priority, l.ready_at, l.seq LIMIT 1000 FOR UPDATE SKIP LOCKED) b
        WHERE w.key = b.key;
END $$;

-- Scans levels of queues for rows that are ready. p_from is where the index scan of a level starts: entries of deleted rows
-- stay in the index while an old snapshot may see them, and a claimer knows how far the start is empty. With p_used, only
-- levels that hold rows are scanned.
--
-- Returns locked rows, and three kinds of rows without a payload. Without a queue: seq is the time of the scan, revision the
-- number of index entries that led to no row. Without a key: due_at is the first ready_at of that level. Otherwise: a
-- candidate that is not locked and is ready since due_at. Where the choice is clear, rows are locked here; rows locked by
-- other claimers are skipped. Where several levels offer more than p_limit, the caller chooses and locks its choice with
-- lock_candidates, so that it locks only the rows that it is granted. p_hold locks all.
--
-- The index entry of a row whose lease was renewed lags behind. The scan moves such entries.
CREATE FUNCTION {schema}.candidates(
    p_queue text[], p_level smallint[], p_from bigint[], p_used boolean, p_limit bigint, p_now bigint, p_hold boolean)
RETURNS SETOF {schema}.work LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    at_now bigint := coalesce(p_now, {schema}.clock());
    before bigint := pg_stat_get_xact_tuples_returned('{schema}.work_ready'::regclass);
    locked bigint;
    levels integer[];
    found  {schema}.candidate[];
    first  {schema}.candidate;
    seen   record;
    report {schema}.work;
    offer  {schema}.work;
BEGIN
    IF p_used THEN
        levels := {schema}.used_levels(p_queue);
    END IF;
    IF cardinality(levels) <= 1 THEN
        -- The usual case. The first ready_at is not read: p_from of the level is kept until the next scan.
        report.queue := p_queue[levels[1]];
        report.priority := p_level[levels[1]];
        RETURN QUERY SELECT w.* FROM {schema}.work w
            WHERE w.queue = report.queue AND w.priority = report.priority AND w.ready_at <= at_now
                AND (w.lease_expires_at IS NULL OR w.lease_expires_at <= at_now)
            ORDER BY w.queue, w.priority, w.ready_at, w.seq LIMIT p_limit FOR UPDATE SKIP LOCKED;
        GET DIAGNOSTICS locked = ROW_COUNT;
        offer.seq := at_now;
        offer.revision := pg_stat_get_xact_tuples_returned('{schema}.work_ready'::regclass) - before - locked;
        RETURN NEXT offer;
        IF cardinality(levels) = 1 THEN
            report.due_at := p_from[levels[1]];
            RETURN NEXT report;
        END IF;
        IF offer.revision > 10 THEN
            PERFORM {schema}.move_lagging(report.queue, report.priority, p_from[levels[1]], at_now);
        END IF;
        RETURN;
    END IF;
    FOR turn IN 1 .. 10 LOOP
        -- Ordered by level, then by ready_at.
        found := ARRAY (SELECT ROW (g.ordinal, w.key, w.ready_at, w.seq, w.lease_expires_at)::{schema}.candidate
            FROM unnest(p_queue, p_level, p_from) WITH ORDINALITY g (queue, level, since, ordinal)
            CROSS JOIN LATERAL (SELECT w.key, w.ready_at, w.seq, w.lease_expires_at FROM {schema}.work w
                WHERE w.queue = g.queue AND w.priority = g.level AND w.ready_at >= g.since AND w.ready_at <= at_now
                ORDER BY w.queue, w.priority, w.ready_at, w.seq LIMIT p_limit) w
            WHERE NOT p_used OR g.ordinal = ANY (levels));
        EXIT WHEN cardinality(found) = 0;
        SELECT count(*) AS rows, max(f.ordinal) AS last, bool_or(f.lease_expires_at > at_now) AS lags INTO seen
            FROM unnest(found) f;
        EXIT WHEN NOT coalesce(seen.lags, false);
        FOR first IN SELECT f.ordinal, NULL, min(f.ready_at), NULL, NULL FROM unnest(found) f
                WHERE f.lease_expires_at > at_now GROUP BY f.ordinal LOOP
            PERFORM {schema}.move_lagging(p_queue[first.ordinal], p_level[first.ordinal], first.ready_at, at_now);
        END LOOP;
    END LOOP;
    report.seq := at_now;
    report.revision :=
        pg_stat_get_xact_tuples_returned('{schema}.work_ready'::regclass) - before - cardinality(found);
    RETURN NEXT report;
    IF cardinality(found) = 0 THEN
        RETURN;
    END IF;
    first := found[1];
    LOOP
        report.queue := p_queue[first.ordinal];
        report.priority := p_level[first.ordinal];
        report.due_at := first.ready_at;
        RETURN NEXT report;
        IF seen.last > found[1].ordinal AND seen.rows > p_limit AND NOT p_hold THEN
            FOR first IN SELECT f.* FROM unnest(found) f WHERE f.ordinal = first.ordinal LOOP
                CONTINUE WHEN first.lease_expires_at > at_now;
                offer.queue := report.queue;
                offer.priority := report.priority;
                offer.key := first.key;
                offer.seq := first.seq;
                offer.due_at := first.ready_at;
                RETURN NEXT offer;
            END LOOP;
        ELSE
            RETURN QUERY SELECT w.* FROM {schema}.work w
                WHERE w.queue = report.queue AND w.priority = report.priority
                    AND w.ready_at >= report.due_at AND w.ready_at <= at_now
                    AND (w.lease_expires_at IS NULL OR w.lease_expires_at <= at_now)
                ORDER BY w.queue, w.priority, w.ready_at, w.seq LIMIT p_limit FOR UPDATE SKIP LOCKED;
        END IF;
        EXIT WHEN first.ordinal = seen.last;
        SELECT f.* INTO first FROM unnest(found) f WHERE f.ordinal > first.ordinal LIMIT 1;
    END LOOP;
END $$;

-- Locks the rows that are still ready, and skips those that another claimer has locked.
CREATE FUNCTION {schema}.lock_candidates(p_key text[], p_now bigint) RETURNS SETOF {schema}.work
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    at_now bigint := coalesce(p_now, {schema}.clock());
BEGIN
    RETURN QUERY SELECT * FROM {schema}.work w WHERE w.key = ANY (p_key) AND w.ready_at <= at_now
        AND (w.lease_expires_at IS NULL OR w.lease_expires_at <= at_now) FOR UPDATE SKIP LOCKED;
END $$;

-- Returns the time when the next row of each level is ready, and last the number of index entries that led to no row; see
-- candidates for p_from. With p_now, a row that was ready by then is locked by another claimer. A renewed lease leaves
-- ready_at behind, so the first row of the index need not be the first that is ready: the scan ends where no later row can
-- be earlier. After a hundred lagging rows the result is too early instead, which costs the caller one more claim, and
-- that claim moves them.
CREATE FUNCTION {schema}.next_ready(p_queue text[], p_level smallint[], p_from bigint[], p_used boolean, p_now bigint)
RETURNS bigint[] LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    levels  integer[];
    firsts  {schema}.candidate[];
    first   {schema}.candidate;
    row     record;
    lagging integer;
    ready   bigint;
    before  bigint := pg_stat_get_xact_tuples_returned('{schema}.work_ready'::regclass);
    result  bigint[] := array_fill(NULL::bigint, ARRAY [cardinality(p_queue)]);
BEGIN
    IF p_used THEN
        levels := {schema}.used_levels(p_queue);
    END IF;
    firsts := ARRAY (SELECT ROW (g.ordinal, NULL, w.ready_at, NULL, NULL)::{schema}.candidate
        FROM unnest(p_queue, p_level, p_from) WITH ORDINALITY g (queue, level, since, ordinal)
        CROSS JOIN LATERAL (SELECT w.ready_at FROM {schema}.work w
            WHERE w.queue = g.queue AND w.priority = g.level AND w.ready_at >= g.since
            ORDER BY w.queue, w.priority, w.ready_at LIMIT 1) w
        WHERE NOT p_used OR g.ordinal = ANY (levels));
    result := result || pg_stat_get_xact_tuples_returned('{schema}.work_ready'::regclass) - before - cardinality(firsts);
    FOREACH first IN ARRAY firsts LOOP
        ready := NULL;
        lagging := 0;
        FOR row IN SELECT w.ready_at, w.lease_expires_at FROM {schema}.work w
                WHERE w.queue = p_queue[first.ordinal] AND w.priority = p_level[first.ordinal]
                    AND w.ready_at >= first.ready_at
                ORDER BY w.queue, w.priority, w.ready_at LOOP
            EXIT WHEN ready <= row.ready_at;
            lagging := lagging + 1;
            IF lagging > 100 THEN
                ready := row.ready_at;
                EXIT;
            END IF;
            ready := least(ready, greatest(row.ready_at, row.lease_expires_at));
        END LOOP;
        result[first.ordinal] := CASE WHEN ready <= p_now THEN p_now + 5000 ELSE ready END;
    END LOOP;
    RETURN result;
END $$;

-- Returns the first version of a stream whose event is after a position. Positions rise with versions, so a binary search
-- finds it in a stream of any length. Usually the position is that of an event of the stream, and the next version is meant.
CREATE FUNCTION {schema}.version_after(p_stream text, p_position bigint) RETURNS bigint LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    low    bigint;
    high   bigint;
    middle bigint;
    there  bigint;
BEGIN
    SELECT version + 1 INTO low FROM {schema}.events WHERE position = p_position AND stream = p_stream;
    IF FOUND THEN
        RETURN low;
    END IF;
    low := 0;
    SELECT coalesce(head, -1) + 1 INTO high FROM {schema}.streams WHERE key = p_stream;
    WHILE low < high LOOP
        middle := (low + high) / 2;
        SELECT position INTO there FROM {schema}.events WHERE stream = p_stream AND version = middle;
        IF there > p_position THEN
            high := middle;
        ELSE
            low := middle + 1;
        END IF;
    END LOOP;
    RETURN low;
END $$;

-- Removes the first events of streams: versions from p_first up to, but not including, p_before. write_streams has locked the
-- rows of the streams, so no other transaction adds or removes their events. The function runs last, after the events of
-- the same transaction and the receipts with their positions are written.
CREATE FUNCTION {schema}.truncate_streams(
    p_after bigint, p_key text[], p_first bigint[], p_before bigint[],
    OUT removed bigint) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms' AS $$
DECLARE
    found_rows bigint;
    highest    bigint;
BEGIN
    UPDATE {schema}.streams s SET first_version = t.before
        FROM unnest(p_key, p_first, p_before) t (key, first, before)
        WHERE s.key = t.key AND s.first_version = t.first;
    GET DIAGNOSTICS found_rows = ROW_COUNT;
    IF found_rows <> cardinality(p_key) THEN
        PERFORM {schema}.stale('stream');
    END IF;
    WITH gone AS (DELETE FROM {schema}.events e USING unnest(p_key, p_first, p_before) t (key, first, before)
        WHERE e.stream = t.key AND e.version >= t.first AND e.version < t.before RETURNING e.position)
    SELECT count(*), max(gone.position) INTO removed, highest FROM gone;
    -- Readers have seen the end of the log, so it is kept when its last event is removed.
    IF highest > coalesce((SELECT max(position) FROM {schema}.events), 0) THEN
        UPDATE {schema}.floors f SET position = greatest(f.position, highest);
    END IF;
END $$;

-- Functions for programs in other languages, inside their own transactions. They use the server's clock. The SQLSTATE of a
-- failure ends with the digits of its error code: TL201 is TL0201.
--
--   BEGIN;
--   INSERT INTO invoices ...;
--   SELECT * FROM tidelock.append(tidelock.key('order') || tidelock.arg('o-1'), 'OrderPlaced', '{"total": 3}');
--   SELECT tidelock.enqueue(tidelock.key('mail') || tidelock.arg('o-1'), 'mails');
--   COMMIT;
--   SELECT tidelock.hint();
--
-- Strings with backslashes are E'' strings, which do not depend on standard_conforming_strings.
-- A run is started by an append to its stream with expected => -1, and a recurring work row that follows the stream.

-- Encodes the kind of a key or a text argument: a character up to the dollar sign becomes a dollar sign and the character
-- shifted by 48.
CREATE FUNCTION {schema}.key_text(value text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT coalesce(string_agg(CASE WHEN ascii(c) <= 36 THEN '$' || chr(ascii(c) + 48) ELSE c END, '' ORDER BY n), '')
    FROM string_to_table(value, NULL) WITH ORDINALITY t (c, n)
$$;

CREATE FUNCTION {schema}.key(kind text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT {schema}.key_text(kind)
$$;

CREATE FUNCTION {schema}.arg(value text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT ' ' || {schema}.key_text(value)
$$;

CREATE FUNCTION {schema}.arg(value uuid) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT '"' || value::text
$$;

-- A number is prefixed by its length, so that texts sort like numbers.
CREATE FUNCTION {schema}.arg(value bigint) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT CASE WHEN value < 0
        THEN '#-' || chr(90 - length(value::text) + 1) || translate(substr(value::text, 2), '0123456789', '9876543210')
        ELSE '#' || chr(64 + length(value::text)) || value::text END
$$;

CREATE FUNCTION {schema}.check_name(what text, value text, bytes bigint) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF value IS NULL OR octet_length(value) NOT BETWEEN 1 AND bytes
        OR value ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' COLLATE "C" THEN
        RAISE EXCEPTION 'tidelock: % is %, expected 1 to % bytes without control characters',
            what, coalesce(quote_literal(left(value, 200)), 'missing'), bytes USING ERRCODE = 'TL103';
    END IF;
END $$;

-- Accepts canonical keys only: programs could not address a row with another text.
CREATE FUNCTION {schema}.check_key(what text, value text) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    good   boolean;
    number text;
BEGIN
    good := value IS NOT NULL AND octet_length(value) <= 1024 AND value COLLATE "C" ~ (
        E'^([^\\u0001-\\u0024]|\\$[0-T])+( ([^\\u0001-\\u0024]|\\$[0-T])*'
        '|"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|#([A-S][0-9]+|-[G-Y][0-9]+))*$');
    IF good AND position('#' IN value) > 0 THEN
        FOR number IN SELECT m[1] FROM regexp_matches(value COLLATE "C", '#(-?[A-Z][0-9]+)', 'g') m LOOP
            good := good AND CASE WHEN left(number, 1) = '-'
                THEN length(number) - 2 = 90 - ascii(substr(number, 2)) AND substr(number, 3, 1) <> '9'
                ELSE length(number) - 1 = ascii(number) - 64 AND (number = 'A0' OR substr(number, 2, 1) <> '0') END;
        END LOOP;
    END IF;
    IF NOT good THEN
        RAISE EXCEPTION 'tidelock: % is %, expected the text of a key: build it with {schema}.key and {schema}.arg',
            what, coalesce(quote_literal(left(value, 200)), 'missing') USING ERRCODE = 'TL101';
    END IF;
END $$;

-- Compares two payloads by value. Payloads that jsonb cannot represent are compared as text.
CREATE FUNCTION {schema}.same_json(a json, b json) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF coalesce(a::text, 'null') = coalesce(b::text, 'null') THEN
        RETURN true;
    END IF;
    RETURN coalesce(a::jsonb, 'null') = coalesce(b::jsonb, 'null');
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END $$;

CREATE FUNCTION {schema}.check_payload(what text, value json) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF octet_length(value::text) > 4194304 THEN
        RAISE EXCEPTION 'tidelock: % has % bytes, 4194304 are allowed', what, octet_length(value::text)
            USING ERRCODE = 'TL105';
    END IF;
END $$;

-- Appends one event to a stream. expected is the version of the last event, -1 for a stream without events, NULL for any
-- version. Repeating an append with the same id and content returns the first result.
CREATE FUNCTION {schema}.append(
    stream text, type text, payload json DEFAULT 'null', expected bigint DEFAULT NULL, id uuid DEFAULT NULL,
    meta json DEFAULT NULL, correlation text DEFAULT NULL,
    OUT version bigint, OUT "position" bigint) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    head   bigint;
    closed bigint;
    first  {schema}.events;
BEGIN
    PERFORM {schema}.check_key('the stream', append.stream), {schema}.check_name('the type', append.type, 200),
        {schema}.check_payload('the payload', append.payload), {schema}.check_payload('the metadata', append.meta);
    IF octet_length(append.correlation) > 1024 THEN
        RAISE EXCEPTION 'tidelock: the correlation has % bytes, 1024 are allowed', octet_length(append.correlation)
            USING ERRCODE = 'TL105';
    END IF;
    PERFORM {schema}.check_epoch(NULL);
    LOOP
        SELECT s.head, s.closed_at INTO head, closed FROM {schema}.streams s WHERE s.key = append.stream FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO {schema}.streams AS s (key) VALUES (append.stream) ON CONFLICT DO NOTHING;
    END LOOP;
    SELECT * INTO first FROM {schema}.events e WHERE e.id = append.id;
    IF FOUND THEN
        IF (first.stream, first.type, first.correlation) IS DISTINCT FROM (append.stream, append.type, append.correlation)
            OR NOT {schema}.same_json(first.payload, append.payload) OR NOT {schema}.same_json(first.meta, append.meta)
        THEN
            RAISE EXCEPTION 'tidelock: the event id % belongs to another event: version % of %',
                append.id, first.version, quote_literal(first.stream) USING ERRCODE = 'TL208';
        END IF;
        version := first.version;
        position := first.position;
        RETURN;
    END IF;
    IF append.expected <> coalesce(head, -1) THEN
        RAISE EXCEPTION 'tidelock: stream % is at version %, expected %', quote_literal(append.stream),
            coalesce(head, -1), append.expected USING ERRCODE = 'TL201';
    END IF;
    IF closed IS NOT NULL THEN
        RAISE EXCEPTION 'tidelock: stream % is closed', quote_literal(append.stream) USING ERRCODE = 'TL205';
    END IF;
    version := coalesce(head, -1) + 1;
    UPDATE {schema}.streams s SET head = append.version WHERE s.key = append.stream;
    position := ({schema}.draw_positions(1))[1];
    INSERT INTO {schema}.events (position, stream, version, id, type, recorded_at, payload, meta, correlation, bytes)
    VALUES (append.position, append.stream, append.version, coalesce(append.id, gen_random_uuid()), append.type,
        {schema}.clock(), append.payload, nullif(append.meta::text, 'null')::json, append.correlation,
        octet_length(append.payload::text) + coalesce(octet_length(append.meta::text), 4));
END $$;

-- Enqueues work, or wakes an existing row: its due time becomes the earlier of the two, and the new queue, priority and (when
-- given) payload and followed stream replace the old ones. A row in backoff after a failure keeps its due time. A leased
-- row runs again after its lease.
CREATE FUNCTION {schema}.enqueue(
    key text, queue text, payload json DEFAULT NULL, due_at timestamptz DEFAULT NULL, priority integer DEFAULT 5,
    recurring boolean DEFAULT false, follows text DEFAULT NULL, "position" bigint DEFAULT NULL
) RETURNS void LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    at_now bigint := {schema}.clock();
    wanted bigint := coalesce((extract(epoch FROM enqueue.due_at) * 1000000)::bigint, at_now);
BEGIN
    PERFORM {schema}.check_epoch(NULL);
    PERFORM {schema}.check_key('the key', enqueue.key), {schema}.check_name('the queue', enqueue.queue, 200),
        {schema}.check_payload('the payload', enqueue.payload);
    IF enqueue.follows IS NOT NULL THEN
        PERFORM {schema}.check_key('the followed stream', enqueue.follows);
    END IF;
    IF enqueue.position < 0 THEN
        RAISE EXCEPTION 'tidelock: the position is %, expected none below 0', enqueue.position USING ERRCODE = 'TL103';
    END IF;
    IF enqueue.priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'tidelock: the priority is %, expected 0 to 9', enqueue.priority USING ERRCODE = 'TL103';
    END IF;
    INSERT INTO {schema}.work AS w (key, seq, revision, queue, priority, recurring, ready_at, due_at, position, follows,
            payload, attempts, takeovers, enqueued_at)
    VALUES (enqueue.key, nextval('{schema}.work_seqs'), 0, enqueue.queue, enqueue.priority, enqueue.recurring, wanted,
        wanted, enqueue.position, enqueue.follows, coalesce(enqueue.payload, 'null'), 0, 0, at_now)
    ON CONFLICT (key) DO UPDATE SET
        revision = w.revision + 1, queue = excluded.queue, priority = excluded.priority,
        wake_at = CASE WHEN w.lease_owner IS NOT NULL THEN least(w.wake_at, wanted) ELSE w.wake_at END,
        due_at = CASE WHEN w.lease_owner IS NULL AND (w.attempts = 0 OR w.due_at IS NULL) THEN least(w.due_at, wanted)
            ELSE w.due_at END,
        ready_at = CASE
            WHEN w.blocked_at IS NOT NULL THEN NULL
            WHEN w.lease_owner IS NOT NULL THEN greatest(least(w.due_at, w.wake_at, wanted), w.lease_expires_at)
            WHEN w.attempts = 0 OR w.due_at IS NULL THEN least(w.due_at, wanted)
            ELSE w.due_at END,
        payload = coalesce(enqueue.payload, w.payload), follows = coalesce(enqueue.follows, w.follows);
END $$;

-- Wakes the processes that wait for changes. Call it after the commit, not in the transaction: at commit, a notification
-- takes a lock that all databases of the server share.
CREATE FUNCTION {schema}.hint() RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT pg_notify('tidelock_{schema}', '')
$$;

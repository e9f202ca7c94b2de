-- Facts, state and work, in a schema of their own. {schema} stands for its name.
-- Instants are microseconds since the epoch. Keys are the canonical text of tidelock_core::key. Payloads are JSON, kept
-- byte for byte; bytes is what they weigh when they are read. Numbers that are drawn (positions, fences, seq) come from sequences that begin at 0, already used.
--
-- Tables whose rows come and go are vacuumed by the number of dead rows, not by their share: a large table would wait too
-- long. The vacuum of the work table does not pause, because claims pay for every dead row that it leaves.
--
-- Whoever writes takes rows in one order: streams, documents, work, operations; in each, rows that exist before rows that
-- are made, and keys in order. So writers never wait for each other in a circle.

-- first_version is the lowest version that truncation left; one above the head when none is left.
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
    at          bigint NOT NULL,
    payload     json NOT NULL,
    meta        json,
    correlation text COLLATE "C",
    bytes       bigint NOT NULL,
    CONSTRAINT events_stream UNIQUE (stream, version)
);
CREATE INDEX events_correlation ON {schema}.events (correlation, position) WHERE correlation IS NOT NULL;

-- A deleted document keeps its row without a value, and with it its version. Only columns that rarely change are
-- indexed, so that an update stays on its page.
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
CREATE INDEX documents_gone ON {schema}.documents (deleted_at) WHERE deleted_at IS NOT NULL;
-- Lists skip deleted documents by this one.
CREATE INDEX documents_live ON {schema}.documents (key) WHERE deleted_at IS NULL;

-- No document begins at or below the floor: tombstones up to it were swept. No event is left above the floor of positions,
-- but one was: truncation removed it.
CREATE TABLE {schema}.floors (document bigint NOT NULL, position bigint NOT NULL);
INSERT INTO {schema}.floors VALUES (0, 0);

CREATE SEQUENCE {schema}.work_seqs MINVALUE 0 START 0;
SELECT setval('{schema}.work_seqs', 0, true);
CREATE SEQUENCE {schema}.fences MINVALUE 0 START 0;
SELECT setval('{schema}.fences', 0, true);

-- ready_at is what claims go by: not before then may the row be had; NULL while it is blocked or rests. A lease that is
-- renewed leaves it behind, so that renewing touches no index; the claim that meets such a row brings it up to date.
CREATE TABLE {schema}.work (
    key            text COLLATE "C" CONSTRAINT work_key PRIMARY KEY,
    seq            bigint NOT NULL,
    revision       bigint NOT NULL,
    lane           text COLLATE "C" NOT NULL,
    priority       smallint NOT NULL,
    standing       boolean NOT NULL,
    ready_at       bigint,
    due            bigint,
    woken          bigint,
    position       bigint,
    follow         text COLLATE "C",
    payload        json NOT NULL,
    attempts       bigint NOT NULL,
    takeovers      bigint NOT NULL,
    last_error     text,
    blocked_reason text,
    blocked_since  bigint,
    lease_owner    text,
    lease_fence    bigint,
    lease_since    bigint,
    lease_until    bigint,
    enqueued_at    bigint NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX work_ready ON {schema}.work (lane, priority, ready_at, seq) WHERE ready_at IS NOT NULL;
CREATE INDEX work_blocked ON {schema}.work (key) WHERE blocked_since IS NOT NULL;
CREATE INDEX work_leased ON {schema}.work (key) WHERE lease_owner IS NOT NULL;
CREATE INDEX work_by_lane ON {schema}.work (lane, key);

-- The outcome of operations. An operation that was resolved as not applied has no receipt; its id is void.
CREATE TABLE {schema}.operations (
    id        uuid CONSTRAINT operations_id PRIMARY KEY,
    at        bigint NOT NULL,
    receipt   text,
    positions bigint[]
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX operations_at ON {schema}.operations (at);

-- The server's clock.
CREATE FUNCTION {schema}.clock() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- The epoch: the generation of the history, with the timeline of the server and the database that it belongs to. It has one
-- row. Every writer reads it, and thereby keeps the table locked against a new epoch until the writer has ended. A new
-- epoch truncates the table, so that a writer with an old snapshot finds no row and fails.
CREATE TABLE {schema}.epoch (
    epoch    bigint NOT NULL,
    timeline text,
    identity text NOT NULL
);

-- Where the history was cut: events after cut_after were lost, and the first position of the new epoch is resumes_at.
CREATE TABLE {schema}.history_cuts (
    epoch       bigint CONSTRAINT history_cuts_epoch PRIMARY KEY,
    previous    bigint NOT NULL,
    cut_after   bigint NOT NULL,
    resumes_at  bigint NOT NULL,
    fence       bigint NOT NULL,
    declared_at bigint NOT NULL,
    reason      text NOT NULL
);

-- The timeline of the server, which every promotion changes. A server that does not tell it returns NULL.
CREATE FUNCTION {schema}.timeline() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- Which database this is: the cluster, the database in it, and the table itself, which a restored dump creates again.
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

-- Fails unless the writer knows the present epoch, and the server still is the one that it belongs to. Without p_epoch
-- only the server counts.
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

-- Why the history must have been cut, if it was. p_position and p_fence are the highest that the caller was ever given.
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
            THEN 'the database went back behind what was committed to it' END;
END $$;

-- A number above all that were drawn, here or in a history that was lost. A margin alone repeats itself when one backup is
-- restored twice; the clock does not.
CREATE FUNCTION {schema}.ahead(numbers regclass, p_known bigint) RETURNS bigint LANGUAGE sql VOLATILE
RETURN greatest(greatest(coalesce(pg_sequence_last_value(numbers), 0), p_known) + 1073741824, {schema}.clock());

-- Begins a new epoch. No writer is in flight meanwhile: each holds the table of the epoch.
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
    -- Numbers that are moved stay moved, also if this is taken back.
    PERFORM setval('{schema}.positions', cut.resumes_at - 1), setval('{schema}.fences', cut.fence),
        setval('{schema}.work_seqs', {schema}.ahead('{schema}.work_seqs', 0));
    RETURN cut;
END $$;
REVOKE ALL ON FUNCTION {schema}.begin_epoch(text, bigint, bigint) FROM PUBLIC;

-- The present epoch. Begins a new one when the history must have been cut.
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

-- Says that a row is not as the writer believed; nothing of its transaction stays.
CREATE FUNCTION {schema}.stale(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'tidelock: a % changed in between', what USING ERRCODE = 'TL001';
END $$;

-- Sets synchronous_commit for this transaction, where the session is not the store's own. remote_apply is stronger than
-- on and stays.
CREATE FUNCTION {schema}.set_flush(p_flush text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF p_flush IS NOT NULL AND (p_flush <> 'on' OR current_setting('synchronous_commit') <> 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', p_flush, true);
    END IF;
END $$;

-- The server's clock, for a writer that knows the epoch. A writer that decided on a guess of it, and guessed badly, must
-- decide again. p_flush is for set_flush.
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

-- Draws positions for events, while the heads of their streams are held, so that positions and versions agree. Before
-- it draws, it advertises the last position that anybody had drawn, until the transaction ends: whatever this
-- transaction writes is above that. Readers stay at or below the lowest advertisement (see ceiling).
CREATE FUNCTION {schema}.draw_positions(amount bigint) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Once for a transaction: the first is the lowest, and locks are few. Lock and setting are undone by a savepoint. The
    -- setting names the transaction, so that one that a session or a role has set means nothing.
    IF current_setting('tidelock.{schema}', true) IS DISTINCT FROM pg_current_xact_id()::text THEN
        PERFORM pg_advisory_xact_lock_shared('{schema}.positions'::regclass::oid::int,
            coalesce(pg_sequence_last_value('{schema}.positions'), -1)::bit(32)::int);
        PERFORM set_config('tidelock.{schema}', pg_current_xact_id()::text, true);
    END IF;
    RETURN {schema}.draw('{schema}.positions'::regclass, amount);
END $$;

-- Up to where the log may be read: the highest visible position, or the lowest advertisement if that is lower. Two
-- statements in this order, and the page must be read by a third one, later. With it come the highest position ever drawn,
-- and the cut of the history in which p_after was lost, if it was.
CREATE FUNCTION {schema}.ceiling(p_epoch bigint, p_after bigint, OUT ceiling bigint, OUT highest bigint,
    OUT cut {schema}.history_cuts) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    visible bigint;
    lowest  bigint;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'tidelock: a standby does not know who is writing' USING ERRCODE = 'TL002';
    END IF;
    PERFORM {schema}.check_epoch(p_epoch);
    highest := coalesce(pg_sequence_last_value('{schema}.positions'), 0);
    SELECT coalesce(max(position), 0) INTO visible FROM {schema}.events;
    -- A lock carries the lower half of a position; writers are never so far apart that it could be mistaken.
    SELECT min(highest + (objid::bigint - highest)::bit(32)::int) INTO lowest FROM pg_locks
        WHERE locktype = 'advisory' AND classid = '{schema}.positions'::regclass::oid AND objsubid = 2
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    ceiling := least(visible, lowest);
    SELECT * INTO cut FROM {schema}.history_cuts c WHERE c.cut_after < p_after AND c.resumes_at > p_after LIMIT 1;
END $$;

-- Writes streams and their events, if the streams are as the writer believed: g_ are only looked at, u_ change, c_ are
-- made, a_ do not exist (and stay so until the end of the transaction, where a_pin says so). Returns the positions.
-- p_after is only there to be given the answer of the function before: one statement calls them all, in that order.
-- The settings keep to the indexes, whatever a table's size was when the plan was made.
CREATE FUNCTION {schema}.write_streams(
    p_after bigint, p_now bigint, p_flush text, p_epoch bigint,
    g_key text[], g_head bigint[], g_closed bigint[],
    u_key text[], u_head bigint[], u_new bigint[], u_closed bigint[],
    c_key text[], c_head bigint[], c_closed bigint[],
    a_key text[], a_pin text[],
    e_stream text[], e_version bigint[], e_id uuid[], e_type text[], e_at bigint[],
    e_payload text[], e_meta text[], e_correlation text[],
    OUT server_now bigint, OUT drawn bigint[]) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms' AS $$
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
        INSERT INTO {schema}.events (position, stream, version, id, type, at, payload, meta, correlation, bytes)
            SELECT e.position, e.stream, e.version, e.id, e.type, e.at, e.payload::json, e.meta::json, e.correlation,
                octet_length(e.payload) + coalesce(octet_length(e.meta), 4)
            FROM unnest(drawn, e_stream, e_version, e_id, e_type, e_at, e_payload, e_meta, e_correlation)
                e (position, stream, version, id, type, at, payload, meta, correlation);
    END IF;
END $$;

-- Writes documents, if they are as the writer believed: see write_streams. Versions are never used twice, so a version
-- says everything about a row but whether its value was swept: one without a value is believed with a minus. The floor is read after the rows: who saw a row missing sees the floor that was raised
-- before it was swept.
CREATE FUNCTION {schema}.write_documents(
    p_after bigint, p_now bigint, p_flush text, p_epoch bigint, p_floor bigint,
    g_key text[], g_version bigint[],
    u_key text[], u_was bigint[], u_version bigint[], u_value text[], u_updated bigint[], u_expires bigint[],
    u_deleted bigint[],
    c_key text[], c_version bigint[], c_value text[], c_updated bigint[], c_expires bigint[], c_deleted bigint[],
    a_key text[], a_pin text[],
    OUT server_now bigint) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms' AS $$
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
            -- An old snapshot shows an old floor; this fails if there is a newer one.
            PERFORM 1 FROM {schema}.floors FOR SHARE;
        END IF;
        IF p_floor <> (SELECT document FROM {schema}.floors) THEN
            PERFORM {schema}.stale('floor');
        END IF;
    END IF;
END $$;

-- Writes work rows, if they are as the writer believed: see write_streams. A row is known by its seq and revision. w_ are
-- rows to be written: made when w_was_seq is NULL. New seqs and fences are given by their place among those that are
-- drawn here, from 1 on; otherwise the present seq and the given fence stay.
CREATE FUNCTION {schema}.write_work(
    p_after bigint, p_now bigint, p_flush text, p_epoch bigint, p_seqs bigint, p_fences bigint,
    g_key text[], g_seq bigint[], g_revision bigint[],
    d_key text[], d_seq bigint[], d_revision bigint[],
    w_key text[], w_was_seq bigint[], w_was_revision bigint[], w_new_seq bigint[],
    w_lane text[], w_priority smallint[], w_standing boolean[], w_ready_at bigint[], w_due bigint[], w_woken bigint[],
    w_position bigint[], w_follow text[], w_payload text[], w_attempts bigint[], w_takeovers bigint[],
    w_last_error text[], w_blocked_reason text[], w_blocked_since bigint[],
    w_lease_owner text[], w_lease_fence bigint[], w_new_fence bigint[], w_lease_since bigint[], w_lease_until bigint[],
    w_enqueued_at bigint[],
    a_key text[], a_pin text[],
    OUT server_now bigint, OUT seqs bigint[], OUT fences bigint[]) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms' AS $$
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
    -- Fences are drawn while every row that gets one is held: so they rise for each row. New rows are held once made.
    IF p_fences > 0 AND made = 0 THEN
        fences := {schema}.draw('{schema}.fences'::regclass, p_fences);
    END IF;
    IF cardinality(w_key) > made THEN
        UPDATE {schema}.work w SET seq = coalesce(seqs[u.new_seq], w.seq), revision = w.revision + 1, lane = u.lane,
                priority = u.priority, standing = u.standing,
                -- The same lease goes on, only longer: the index need not know.
                ready_at = CASE WHEN w.lease_fence = u.lease_fence AND w.ready_at <= u.ready_at THEN w.ready_at
                    ELSE u.ready_at END,
                due = u.due, woken = u.woken, position = u.position, follow = u.follow,
                payload = coalesce(u.payload::json, w.payload), attempts = u.attempts, takeovers = u.takeovers,
                last_error = u.last_error, blocked_reason = u.blocked_reason, blocked_since = u.blocked_since,
                lease_owner = u.lease_owner, lease_fence = coalesce(fences[u.new_fence], u.lease_fence),
                lease_since = u.lease_since, lease_until = u.lease_until, enqueued_at = u.enqueued_at
            FROM unnest(w_key, w_was_seq, w_was_revision, w_new_seq, w_lane, w_priority, w_standing, w_ready_at, w_due,
                    w_woken, w_position, w_follow, w_payload, w_attempts, w_takeovers, w_last_error, w_blocked_reason,
                    w_blocked_since, w_lease_owner, w_lease_fence, w_new_fence, w_lease_since, w_lease_until,
                    w_enqueued_at)
                u (key, was_seq, was_revision, new_seq, lane, priority, standing, ready_at, due, woken, position, follow,
                    payload, attempts, takeovers, last_error, blocked_reason, blocked_since, lease_owner, lease_fence,
                    new_fence, lease_since, lease_until, enqueued_at)
            WHERE w.key = u.key AND w.seq = u.was_seq AND w.revision = u.was_revision;
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        IF found_rows <> cardinality(w_key) - made THEN
            PERFORM {schema}.stale('work row');
        END IF;
    END IF;
    IF made > 0 THEN
        INSERT INTO {schema}.work (key, seq, revision, lane, priority, standing, ready_at, due, woken, position, follow,
                payload, attempts, takeovers, last_error, blocked_reason, blocked_since, lease_owner, lease_fence,
                lease_since, lease_until, enqueued_at)
            SELECT c.key, seqs[c.new_seq], 0, c.lane, c.priority, c.standing, c.ready_at, c.due, c.woken, c.position,
                c.follow, c.payload::json, c.attempts, c.takeovers, c.last_error, c.blocked_reason, c.blocked_since,
                c.lease_owner, c.lease_fence, c.lease_since, c.lease_until, c.enqueued_at
            FROM unnest(w_key, w_was_seq, w_was_revision, w_new_seq, w_lane, w_priority, w_standing, w_ready_at, w_due,
                    w_woken, w_position, w_follow, w_payload, w_attempts, w_takeovers, w_last_error, w_blocked_reason,
                    w_blocked_since, w_lease_owner, w_lease_fence, w_new_fence, w_lease_since, w_lease_until,
                    w_enqueued_at)
                c (key, was_seq, was_revision, new_seq, lane, priority, standing, ready_at, due, woken, position, follow,
                    payload, attempts, takeovers, last_error, blocked_reason, blocked_since, lease_owner, lease_fence,
                    new_fence, lease_since, lease_until, enqueued_at)
            WHERE c.was_seq IS NULL;
        IF p_fences > 0 THEN
            fences := {schema}.draw('{schema}.fences'::regclass, p_fences);
            UPDATE {schema}.work w SET lease_fence = fences[n.new_fence] FROM unnest(w_key, w_new_fence) n (key, new_fence)
                WHERE w.key = n.key AND n.new_fence IS NOT NULL;
        END IF;
    END IF;
    IF cardinality(a_key) > 0 THEN
        INSERT INTO {schema}.work (key, seq, revision, lane, priority, standing, payload, attempts, takeovers, enqueued_at)
            SELECT unnest(a_pin), 0, 0, '', 0, false, 'null', 0, 0, 0;
        DELETE FROM {schema}.work WHERE key = ANY (a_pin);
        IF EXISTS (SELECT FROM {schema}.work WHERE key = ANY (a_key)) THEN
            PERFORM {schema}.stale('work row');
        END IF;
    END IF;
END $$;

-- Keeps the receipts of batches that have an id, with the positions of their events: p_of says which operation an event
-- belongs to.
CREATE FUNCTION {schema}.write_operations(
    p_after bigint, p_flush text, p_epoch bigint, p_id uuid[], p_at bigint[], p_receipt text[], p_event uuid[],
    p_of bigint[], OUT kept bigint) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms' AS $$
BEGIN
    PERFORM {schema}.check_epoch(p_epoch);
    PERFORM {schema}.set_flush(p_flush);
    INSERT INTO {schema}.operations (id, at, receipt, positions)
    SELECT o.id, o.at, o.receipt, (
        -- An expression: to have its input sorted, PostgreSQL 16 would otherwise read the whole log in order of position.
        SELECT array_agg(e.position ORDER BY e.position + 0)
        FROM unnest(p_event, p_of) w (id, operation) JOIN {schema}.events e ON e.id = w.id WHERE w.operation = o.n)
    FROM unnest(p_id, p_at, p_receipt) WITH ORDINALITY o (id, at, receipt, n);
    kept := cardinality(p_id);
END $$;

-- The outcome of an operation. Without a record, its id is void from now on. A transaction that is writing a record under
-- the id is waited for, p_wait at most: the unique index says that it is there.
CREATE FUNCTION {schema}.resolve(p_id uuid, p_now bigint, p_wait text, p_flush text)
RETURNS SETOF {schema}.operations LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM set_config('lock_timeout', p_wait, true);
    IF p_flush IS NOT NULL THEN
        PERFORM set_config('synchronous_commit', p_flush, true);
    END IF;
    INSERT INTO {schema}.operations (id, at) VALUES (p_id, coalesce(p_now, {schema}.clock()))
        ON CONFLICT ON CONSTRAINT operations_id DO NOTHING;
    RETURN QUERY SELECT * FROM {schema}.operations o WHERE o.id = p_id;
END $$;

-- Rows by their keys, held until the transaction ends.
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

-- A row that a claim may be granted, as seen without a lock. place says which of the scanned levels it belongs to.
CREATE TYPE {schema}.candidate AS (place integer, key text, ready_at bigint, seq bigint, lease_until bigint);

-- The places of levels that hold rows, one seek each. p_lane names every queue ten times, once for each level from 0 on. The
-- seeks meet dead index entries at the end of a level: this is for claimers that met few of them before.
CREATE FUNCTION {schema}.used_places(p_lane text[]) RETURNS integer[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    level  smallint;
    places integer[] := '{}';
BEGIN
    FOR queue IN 1 .. cardinality(p_lane) BY 10 LOOP
        level := 10;
        LOOP
            SELECT w.priority INTO level FROM {schema}.work w
                WHERE w.lane = p_lane[queue] AND w.priority < level AND w.ready_at IS NOT NULL
                ORDER BY w.lane DESC, w.priority DESC LIMIT 1;
            EXIT WHEN NOT FOUND;
            places := places || (queue + level);
        END LOOP;
    END LOOP;
    RETURN places;
END $$;

-- Moves the index entries of rows whose leases were renewed to where the leases end, many at a time.
CREATE FUNCTION {schema}.move_lagging(p_lane text, p_level smallint, p_from bigint, p_now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE {schema}.work w SET ready_at = greatest(b.ready_at, b.lease_until)
        FROM (SELECT l.key, l.ready_at, l.lease_until FROM {schema}.work l
            WHERE l.lane = p_lane AND l.priority = p_level
                AND l.ready_at >= p_from AND l.ready_at <= p_now AND l.lease_until > p_now
            ORDER BY l.lane, l.priority, l.ready_at, l.seq LIMIT 1000 FOR UPDATE SKIP LOCKED) b
        WHERE w.key = b.key;
END $$;

-- Scans levels of queues for rows that are ready. p_from is where the index scan of a level starts: entries of rows that
-- are gone stay in the index while an old snapshot may see them, and a claimer knows how far the beginning is empty. With
-- p_used, only levels that hold rows are scanned.
--
-- Returns locked rows, and three kinds of rows without a payload. Without a queue: seq is the time of the scan, revision the
-- number of index entries that led to no row. Without a key: due is the first ready_at of that level. Otherwise a candidate
-- that is not locked, ready since due. Where the choice is clear, rows are locked here; rows that other claimers have
-- locked are skipped. Where several levels offer more than p_limit, the caller chooses and locks its choice with
-- lock_candidates, so that it locks no more than it is granted. p_hold locks all.
--
-- The index entry of a row whose lease was renewed lags behind. The scan moves such entries.
CREATE FUNCTION {schema}.candidates(
    p_lane text[], p_level smallint[], p_from bigint[], p_used boolean, p_limit bigint, p_now bigint, p_hold boolean)
RETURNS SETOF {schema}.work LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    at_now bigint := coalesce(p_now, {schema}.clock());
    before bigint := pg_stat_get_xact_tuples_returned('{schema}.work_ready'::regclass);
    locked bigint;
    places integer[];
    found  {schema}.candidate[];
    first  {schema}.candidate;
    seen   record;
    report {schema}.work;
    offer  {schema}.work;
BEGIN
    IF p_used THEN
        places := {schema}.used_places(p_lane);
    END IF;
    IF cardinality(places) <= 1 THEN
        -- The usual case. The first ready_at is not looked up: until the next scan, p_from of the level stays.
        report.lane := p_lane[places[1]];
        report.priority := p_level[places[1]];
        RETURN QUERY SELECT w.* FROM {schema}.work w
            WHERE w.lane = report.lane AND w.priority = report.priority AND w.ready_at <= at_now
                AND (w.lease_until IS NULL OR w.lease_until <= at_now)
            ORDER BY w.lane, w.priority, w.ready_at, w.seq LIMIT p_limit FOR UPDATE SKIP LOCKED;
        GET DIAGNOSTICS locked = ROW_COUNT;
        offer.seq := at_now;
        offer.revision := pg_stat_get_xact_tuples_returned('{schema}.work_ready'::regclass) - before - locked;
        RETURN NEXT offer;
        IF cardinality(places) = 1 THEN
            report.due := p_from[places[1]];
            RETURN NEXT report;
        END IF;
        IF offer.revision > 10 THEN
            PERFORM {schema}.move_lagging(report.lane, report.priority, p_from[places[1]], at_now);
        END IF;
        RETURN;
    END IF;
    FOR turn IN 1 .. 10 LOOP
        -- In the order of places, and of ready_at in each.
        found := ARRAY (SELECT ROW (g.place, w.key, w.ready_at, w.seq, w.lease_until)::{schema}.candidate
            FROM unnest(p_lane, p_level, p_from) WITH ORDINALITY g (lane, level, since, place)
            CROSS JOIN LATERAL (SELECT w.key, w.ready_at, w.seq, w.lease_until FROM {schema}.work w
                WHERE w.lane = g.lane AND w.priority = g.level AND w.ready_at >= g.since AND w.ready_at <= at_now
                ORDER BY w.lane, w.priority, w.ready_at, w.seq LIMIT p_limit) w
            WHERE NOT p_used OR g.place = ANY (places));
        EXIT WHEN cardinality(found) = 0;
        SELECT count(*) AS rows, max(f.place) AS last, bool_or(f.lease_until > at_now) AS lags INTO seen
            FROM unnest(found) f;
        EXIT WHEN NOT coalesce(seen.lags, false);
        FOR first IN SELECT f.place, NULL, min(f.ready_at), NULL, NULL FROM unnest(found) f
                WHERE f.lease_until > at_now GROUP BY f.place LOOP
            PERFORM {schema}.move_lagging(p_lane[first.place], p_level[first.place], first.ready_at, at_now);
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
        report.lane := p_lane[first.place];
        report.priority := p_level[first.place];
        report.due := first.ready_at;
        RETURN NEXT report;
        IF seen.last > found[1].place AND seen.rows > p_limit AND NOT p_hold THEN
            FOR first IN SELECT f.* FROM unnest(found) f WHERE f.place = first.place LOOP
                CONTINUE WHEN first.lease_until > at_now;
                offer.lane := report.lane;
                offer.priority := report.priority;
                offer.key := first.key;
                offer.seq := first.seq;
                offer.due := first.ready_at;
                RETURN NEXT offer;
            END LOOP;
        ELSE
            RETURN QUERY SELECT w.* FROM {schema}.work w
                WHERE w.lane = report.lane AND w.priority = report.priority
                    AND w.ready_at >= report.due AND w.ready_at <= at_now
                    AND (w.lease_until IS NULL OR w.lease_until <= at_now)
                ORDER BY w.lane, w.priority, w.ready_at, w.seq LIMIT p_limit FOR UPDATE SKIP LOCKED;
        END IF;
        EXIT WHEN first.place = seen.last;
        SELECT f.* INTO first FROM unnest(found) f WHERE f.place > first.place LIMIT 1;
    END LOOP;
END $$;

-- Locks those of the rows that are still ready and that no other claimer has locked.
CREATE FUNCTION {schema}.lock_candidates(p_key text[], p_now bigint) RETURNS SETOF {schema}.work
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    at_now bigint := coalesce(p_now, {schema}.clock());
BEGIN
    RETURN QUERY SELECT * FROM {schema}.work w WHERE w.key = ANY (p_key) AND w.ready_at <= at_now
        AND (w.lease_until IS NULL OR w.lease_until <= at_now) FOR UPDATE SKIP LOCKED;
END $$;

-- For each of the levels, when its next row is ready, and last the number of index entries that led to no row; see
-- candidates for p_from. With p_now, a row that was ready by then
-- is locked by another claimer. A renewed lease leaves ready_at behind, so the first row of the index need not be the
-- first that is ready: rows are read until none that follows can be earlier. After a hundred that lag the answer is too
-- early instead, which costs the caller another claim, and that claim moves them.
CREATE FUNCTION {schema}.next_ready(p_lane text[], p_level smallint[], p_from bigint[], p_used boolean, p_now bigint)
RETURNS bigint[] LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    places  integer[];
    firsts  {schema}.candidate[];
    first   {schema}.candidate;
    row     record;
    lagging integer;
    ready   bigint;
    before  bigint := pg_stat_get_xact_tuples_returned('{schema}.work_ready'::regclass);
    answer  bigint[] := array_fill(NULL::bigint, ARRAY [cardinality(p_lane)]);
BEGIN
    IF p_used THEN
        places := {schema}.used_places(p_lane);
    END IF;
    firsts := ARRAY (SELECT ROW (g.place, NULL, w.ready_at, NULL, NULL)::{schema}.candidate
        FROM unnest(p_lane, p_level, p_from) WITH ORDINALITY g (lane, level, since, place)
        CROSS JOIN LATERAL (SELECT w.ready_at FROM {schema}.work w
            WHERE w.lane = g.lane AND w.priority = g.level AND w.ready_at >= g.since
            ORDER BY w.lane, w.priority, w.ready_at LIMIT 1) w
        WHERE NOT p_used OR g.place = ANY (places));
    answer := answer || pg_stat_get_xact_tuples_returned('{schema}.work_ready'::regclass) - before - cardinality(firsts);
    FOREACH first IN ARRAY firsts LOOP
        ready := NULL;
        lagging := 0;
        FOR row IN SELECT w.ready_at, w.lease_until FROM {schema}.work w
                WHERE w.lane = p_lane[first.place] AND w.priority = p_level[first.place]
                    AND w.ready_at >= first.ready_at
                ORDER BY w.lane, w.priority, w.ready_at LOOP
            EXIT WHEN ready <= row.ready_at;
            lagging := lagging + 1;
            IF lagging > 100 THEN
                ready := row.ready_at;
                EXIT;
            END IF;
            ready := least(ready, greatest(row.ready_at, row.lease_until));
        END LOOP;
        answer[first.place] := CASE WHEN ready <= p_now THEN p_now + 5000 ELSE ready END;
    END LOOP;
    RETURN answer;
END $$;

-- The first version of a stream whose event lies beyond a position. Positions rise with versions, so it is found by
-- halving, however long the stream is; mostly the position is that of an event, and the next one is meant.
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

-- Removes the first events of streams: those from p_first on that lie below p_before. The rows of the streams are held
-- since write_streams, so nobody else removes or adds events of theirs. It is called last: the events of the same
-- transaction are written by then, and so are receipts with their positions.
CREATE FUNCTION {schema}.truncate_streams(
    p_after bigint, p_key text[], p_first bigint[], p_before bigint[],
    OUT removed bigint) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms' AS $$
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
    -- The end of the log is not forgotten with its last event: readers have seen it.
    IF highest > coalesce((SELECT max(position) FROM {schema}.events), 0) THEN
        UPDATE {schema}.floors f SET position = greatest(f.position, highest);
    END IF;
END $$;

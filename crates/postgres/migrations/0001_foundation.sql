-- Facts, state and work, in a schema of their own. {schema} stands for its name.
-- Instants are microseconds since the epoch. Keys are the canonical text of tidelock_core::key. Payloads are JSON, kept
-- byte for byte; bytes is what they weigh when they are read. Numbers that are drawn (positions, fences, seq) come from sequences that begin at 0, already used.
--
-- Whoever writes takes rows in one order: streams, documents, work, operations; in each, rows that exist before rows that
-- are made, and keys in order. So writers never wait for each other in a circle.

CREATE TABLE {schema}.streams (
    key       text COLLATE "C" CONSTRAINT streams_key PRIMARY KEY,
    head      bigint,
    closed_at bigint
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
) WITH (fillfactor = 80);
CREATE INDEX documents_expiry ON {schema}.documents (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX documents_gone ON {schema}.documents (deleted_at) WHERE deleted_at IS NOT NULL;

-- No document begins at or below the floor: tombstones up to it were swept.
CREATE TABLE {schema}.floors (document bigint NOT NULL);
INSERT INTO {schema}.floors VALUES (0);

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
) WITH (fillfactor = 70);
CREATE INDEX work_ready ON {schema}.work (lane, priority, ready_at, seq) WHERE ready_at IS NOT NULL;
CREATE INDEX work_blocked ON {schema}.work (key) WHERE blocked_since IS NOT NULL;

CREATE TABLE {schema}.operations (
    id        uuid CONSTRAINT operations_id PRIMARY KEY,
    no        bigint GENERATED ALWAYS AS IDENTITY,
    at        bigint NOT NULL,
    receipt   text NOT NULL,
    positions bigint[]
);
-- Rows are written in order of time, so that the oldest are those with the lowest numbers.
CREATE INDEX operations_no ON {schema}.operations (no);

-- The server's clock.
CREATE FUNCTION {schema}.clock() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- Says that a row is not as the writer believed; nothing of its transaction stays.
CREATE FUNCTION {schema}.stale(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'tidelock: a % changed in between', what USING ERRCODE = 'TL001';
END $$;

-- The server's clock. A writer that decided on a guess of it, and guessed badly, must decide again. p_flush is what
-- synchronous_commit must be for this transaction, where the server's own setting is another.
CREATE FUNCTION {schema}.check_clock(p_now bigint, p_flush text) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    server_now bigint := {schema}.clock();
BEGIN
    IF p_flush IS NOT NULL THEN
        PERFORM set_config('synchronous_commit', p_flush, true);
    END IF;
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
    -- Once for a transaction: the first is the lowest, and locks are few. Both are undone by a savepoint.
    IF coalesce(current_setting('tidelock.{schema}', true), '') = '' THEN
        PERFORM pg_advisory_xact_lock_shared('{schema}.positions'::regclass::oid::int,
            coalesce(pg_sequence_last_value('{schema}.positions'), -1)::bit(32)::int);
        PERFORM set_config('tidelock.{schema}', 'advertised', true);
    END IF;
    RETURN {schema}.draw('{schema}.positions'::regclass, amount);
END $$;

-- Up to where the log may be read: the highest visible position, or the lowest advertisement if that is lower. Two
-- statements in this order, and the page must be read by a third one, later.
CREATE FUNCTION {schema}.ceiling() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    visible bigint;
    lowest  bigint;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'tidelock: a standby does not know who is writing' USING ERRCODE = 'TL002';
    END IF;
    SELECT coalesce(max(position), 0) INTO visible FROM {schema}.events;
    -- A lock carries the lower half of a position; writers are never so far apart that it could be mistaken.
    SELECT min(visible + (objid::bigint - visible)::bit(32)::int) INTO lowest FROM pg_locks
        WHERE locktype = 'advisory' AND classid = '{schema}.positions'::regclass::oid AND objsubid = 2
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    RETURN least(visible, lowest);
END $$;

-- Writes streams and their events, if the streams are as the writer believed: g_ are only looked at, u_ change, c_ are
-- made, a_ do not exist (and stay so until the end of the transaction, where a_pin says so). Returns the positions.
-- p_after is only there to be given the answer of the function before: one statement calls them all, in that order.
-- The settings keep to the indexes, whatever a table's size was when the plan was made.
CREATE FUNCTION {schema}.write_streams(
    p_after bigint, p_now bigint, p_flush text,
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
    server_now := {schema}.check_clock(p_now, p_flush);
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
    p_after bigint, p_now bigint, p_flush text, p_floor bigint,
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
    server_now := {schema}.check_clock(p_now, p_flush);
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
    p_after bigint, p_now bigint, p_flush text, p_seqs bigint, p_fences bigint,
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
    server_now := {schema}.check_clock(p_now, p_flush);
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
    p_after bigint, p_id uuid[], p_at bigint[], p_receipt text[], p_event uuid[], p_of bigint[],
    OUT kept bigint) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms' AS $$
BEGIN
    INSERT INTO {schema}.operations (id, at, receipt, positions)
    SELECT o.id, o.at, o.receipt, (
        SELECT array_agg(e.position ORDER BY e.position)
        FROM unnest(p_event, p_of) w (id, operation) JOIN {schema}.events e ON e.id = w.id WHERE w.operation = o.n)
    FROM unnest(p_id, p_at, p_receipt) WITH ORDINALITY o (id, at, receipt, n);
    kept := cardinality(p_id);
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

-- The levels of urgency of a lane that hold rows which may be had some day, one seek each.
CREATE FUNCTION {schema}.levels(p_lane text) RETURNS SETOF smallint LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    level smallint := 32767;
BEGIN
    LOOP
        SELECT w.priority INTO level FROM {schema}.work w
            WHERE w.lane = p_lane AND w.priority < level AND w.ready_at IS NOT NULL
            ORDER BY w.lane DESC, w.priority DESC LIMIT 1;
        EXIT WHEN NOT FOUND;
        RETURN NEXT level;
    END LOOP;
END $$;

-- The oldest rows of each lane and level that may be had, held until the transaction ends; rows that others hold are
-- passed over. Rows whose lease was renewed in the meantime are put in their place on the way, many at a time.
CREATE FUNCTION {schema}.candidates(p_lane text[], p_limit bigint, p_now bigint) RETURNS SETOF {schema}.work
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    this_lane text;
    level     smallint;
    batch     {schema}.work[];
    at_now    bigint := coalesce(p_now, {schema}.clock());
BEGIN
    FOREACH this_lane IN ARRAY p_lane LOOP
        FOR level IN SELECT {schema}.levels(this_lane) LOOP
            FOR turn IN 1 .. 10 LOOP
                batch := ARRAY (SELECT w FROM {schema}.work w
                    WHERE w.lane = this_lane AND w.priority = level AND w.ready_at <= at_now
                    ORDER BY w.lane, w.priority, w.ready_at, w.seq LIMIT p_limit FOR UPDATE SKIP LOCKED);
                EXIT WHEN NOT EXISTS (SELECT FROM unnest(batch) b WHERE b.lease_until > at_now);
                UPDATE {schema}.work w SET ready_at = greatest(b.ready_at, b.lease_until)
                    FROM (SELECT l.key, l.ready_at, l.lease_until FROM {schema}.work l
                        WHERE l.lane = this_lane AND l.priority = level AND l.ready_at <= at_now AND l.lease_until > at_now
                        ORDER BY l.lane, l.priority, l.ready_at, l.seq LIMIT 1000 FOR UPDATE SKIP LOCKED) b
                    WHERE w.key = b.key;
            END LOOP;
            RETURN QUERY SELECT b.* FROM unnest(batch) b WHERE b.lease_until IS NULL OR b.lease_until <= at_now;
        END LOOP;
    END LOOP;
END $$;

-- When the next row of the lanes may be had. A row that could be had already is in somebody's hands just now.
CREATE FUNCTION {schema}.next_ready(p_lane text[], p_now bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    this_lane text;
    level     smallint;
    ready     bigint;
    earliest  bigint;
BEGIN
    FOREACH this_lane IN ARRAY p_lane LOOP
        FOR level IN SELECT {schema}.levels(this_lane) LOOP
            SELECT w.ready_at INTO ready FROM {schema}.work w
                WHERE w.lane = this_lane AND w.priority = level AND w.ready_at IS NOT NULL
                ORDER BY w.lane, w.priority, w.ready_at LIMIT 1;
            earliest := least(earliest, CASE WHEN ready <= p_now THEN p_now + 5000 ELSE ready END);
        END LOOP;
    END LOOP;
    RETURN earliest;
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

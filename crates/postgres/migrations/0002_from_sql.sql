-- Tidelock from SQL: for programs in other languages, inside their own transactions. Everything here goes by the
-- server's clock, and fails with the SQLSTATE that the code of the error ends with: TL201 is TL0201.
--
--   BEGIN;
--   INSERT INTO invoices ...;
--   SELECT * FROM tidelock.append(tidelock.key('order') || tidelock.arg('o-1'), 'OrderPlaced', '{"total": 3}');
--   SELECT tidelock.enqueue(tidelock.key('mail') || tidelock.arg('o-1'), 'mails');
--   COMMIT;
--   SELECT tidelock.hint();
--
-- Backslashes stand in E'' strings, which mean the same whatever standard_conforming_strings is.
-- Starting a run is an append to its stream that expects none, and an enqueue of a standing row that follows it.

-- The text of a key's kind or of a text argument: what sorts up to the dollar sign is written as a dollar sign and the
-- character moved by 48.
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

-- A number carries its length first, so that texts sort like numbers.
CREATE FUNCTION {schema}.arg(value bigint) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT CASE WHEN value < 0
        THEN '#-' || chr(90 - length(value::text) + 1) || translate(substr(value::text, 2), '0123456789', '9876543210')
        ELSE '#' || chr(64 + length(value::text)) || value::text END
$$;

CREATE FUNCTION {schema}.check_name(what text, value text, bytes bigint) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF value IS NULL OR octet_length(value) NOT BETWEEN 1 AND bytes OR value ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' COLLATE "C" THEN
        RAISE EXCEPTION 'tidelock: % is %, expected 1 to % bytes without control characters',
            what, coalesce(quote_literal(left(value, 200)), 'missing'), bytes USING ERRCODE = 'TL103';
    END IF;
END $$;

-- A key is its canonical text and nothing else: a program could never ask for another one.
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

-- Whether two payloads say the same. Some that can be kept cannot be compared by value; those are compared as texts.
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

-- Appends one event to a stream. expected is the version of the last event, -1 for a stream without events, NULL for
-- anything. Appending the same id with the same content again gives the first answer.
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
        {schema}.check_payload('the payload', append.payload), {schema}.check_payload('the note', append.meta);
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
    INSERT INTO {schema}.events (position, stream, version, id, type, at, payload, meta, correlation, bytes)
    VALUES (append.position, append.stream, append.version, coalesce(append.id, gen_random_uuid()), append.type,
        {schema}.clock(), append.payload, nullif(append.meta::text, 'null')::json, append.correlation,
        octet_length(append.payload::text) + coalesce(octet_length(append.meta::text), 4));
END $$;

-- Enqueues work, or wakes it when it exists: its due time becomes the earlier of the two, its lane, priority and (when
-- given) payload and followed stream become the new ones. A row that backs off after a failure keeps its due time; one
-- that somebody holds runs again afterwards.
CREATE FUNCTION {schema}.enqueue(
    key text, lane text, payload json DEFAULT NULL, due timestamptz DEFAULT NULL, priority integer DEFAULT 5,
    standing boolean DEFAULT false, follow text DEFAULT NULL, "position" bigint DEFAULT NULL
) RETURNS void LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    at_now bigint := {schema}.clock();
    wanted bigint := coalesce((extract(epoch FROM enqueue.due) * 1000000)::bigint, at_now);
BEGIN
    PERFORM {schema}.check_epoch(NULL);
    PERFORM {schema}.check_key('the key', enqueue.key), {schema}.check_name('the lane', enqueue.lane, 200),
        {schema}.check_payload('the payload', enqueue.payload);
    IF enqueue.follow IS NOT NULL THEN
        PERFORM {schema}.check_key('the followed stream', enqueue.follow);
    END IF;
    IF enqueue.position < 0 THEN
        RAISE EXCEPTION 'tidelock: the position is %, expected none below 0', enqueue.position USING ERRCODE = 'TL103';
    END IF;
    IF enqueue.priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'tidelock: the priority is %, expected 0 to 9', enqueue.priority USING ERRCODE = 'TL103';
    END IF;
    INSERT INTO {schema}.work AS w (key, seq, revision, lane, priority, standing, ready_at, due, position, follow,
            payload, attempts, takeovers, enqueued_at)
    VALUES (enqueue.key, nextval('{schema}.work_seqs'), 0, enqueue.lane, enqueue.priority, enqueue.standing, wanted,
        wanted, enqueue.position, enqueue.follow, coalesce(enqueue.payload, 'null'), 0, 0, at_now)
    ON CONFLICT (key) DO UPDATE SET
        revision = w.revision + 1, lane = excluded.lane, priority = excluded.priority,
        woken = CASE WHEN w.lease_owner IS NOT NULL THEN least(w.woken, wanted) ELSE w.woken END,
        due = CASE WHEN w.lease_owner IS NULL AND (w.attempts = 0 OR w.due IS NULL) THEN least(w.due, wanted)
            ELSE w.due END,
        ready_at = CASE
            WHEN w.blocked_since IS NOT NULL THEN NULL
            WHEN w.lease_owner IS NOT NULL THEN greatest(least(w.due, w.woken, wanted), w.lease_until)
            WHEN w.attempts = 0 OR w.due IS NULL THEN least(w.due, wanted)
            ELSE w.due END,
        payload = coalesce(enqueue.payload, w.payload), follow = coalesce(enqueue.follow, w.follow);
END $$;

-- Wakes those who wait for changes. Call it after the commit, not in the transaction: a notification takes a lock at
-- commit that all databases of the server share.
CREATE FUNCTION {schema}.hint() RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT pg_notify('tidelock_{schema}', '')
$$;

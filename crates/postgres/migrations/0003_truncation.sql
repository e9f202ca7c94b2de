-- The first events of a stream may be removed. first_version is the lowest version that is left; one above the head when
-- none is. Only a removal depends on it, and those are decided with the row held.
ALTER TABLE {schema}.streams ADD COLUMN first_version bigint NOT NULL DEFAULT 0;

-- Removes the first events of streams: those from p_first on that lie below p_before. The rows of the streams are held
-- since write_streams, so nobody else removes or adds events of theirs. It is called last: the events of the same
-- transaction are written by then, and so are receipts with their positions.
CREATE FUNCTION {schema}.truncate_streams(
    p_after bigint, p_key text[], p_first bigint[], p_before bigint[],
    OUT removed bigint) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms' AS $$
DECLARE
    found_rows bigint;
BEGIN
    UPDATE {schema}.streams s SET first_version = t.before
        FROM unnest(p_key, p_first, p_before) t (key, first, before)
        WHERE s.key = t.key AND s.first_version = t.first;
    GET DIAGNOSTICS found_rows = ROW_COUNT;
    IF found_rows <> cardinality(p_key) THEN
        PERFORM {schema}.stale('stream');
    END IF;
    DELETE FROM {schema}.events e USING unnest(p_key, p_first, p_before) t (key, first, before)
        WHERE e.stream = t.key AND e.version >= t.first AND e.version < t.before;
    GET DIAGNOSTICS removed = ROW_COUNT;
END $$;

-- When the next row of the lanes may be had. With p_now, a row that could be had by then is in somebody's hands. A renewed
-- lease leaves ready_at behind, so the first row of the index need not be the first that may be had: rows are read until
-- none that follows can be earlier. After a hundred that lag the answer is too early instead, which costs the one who
-- asks another claim, and that claim brings them up to date.
CREATE OR REPLACE FUNCTION {schema}.next_ready(p_lane text[], p_now bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    this_lane text;
    level     smallint;
    asked     record;
    lagging   integer;
    ready     bigint;
    earliest  bigint;
BEGIN
    FOREACH this_lane IN ARRAY p_lane LOOP
        FOR level IN SELECT {schema}.levels(this_lane) LOOP
            ready := NULL;
            lagging := 0;
            FOR asked IN SELECT w.ready_at, w.lease_until FROM {schema}.work w
                    WHERE w.lane = this_lane AND w.priority = level AND w.ready_at IS NOT NULL
                    ORDER BY w.lane, w.priority, w.ready_at LOOP
                EXIT WHEN ready <= asked.ready_at;
                lagging := lagging + 1;
                IF lagging > 100 THEN
                    ready := asked.ready_at;
                    EXIT;
                END IF;
                ready := least(ready, greatest(asked.ready_at, asked.lease_until));
            END LOOP;
            earliest := least(earliest, CASE WHEN ready <= p_now THEN p_now + 5000 ELSE ready END);
        END LOOP;
    END LOOP;
    RETURN earliest;
END $$;

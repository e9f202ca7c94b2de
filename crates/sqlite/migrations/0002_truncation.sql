-- The first events of a stream may be removed. first_version is the lowest version that is left; one above the last when
-- none is, so that the next append goes on there.
ALTER TABLE tidelock_streams ADD COLUMN first_version INTEGER NOT NULL DEFAULT 0;

-- 'position' was in use when events were last removed, so it is never given again, whatever the newest event is. What a
-- process knows about the tail was read when 'truncations' had some value; views from before then read for themselves.
INSERT INTO tidelock_counters (name, value) VALUES ('position', 0), ('truncations', 0);

-- The list of sessions is read by the times of their threads.
CREATE INDEX IF NOT EXISTS thread_time ON thread (tenant, last_ms);
-- The names of a session, the sessions that it spawned and those that it owns are looked up.
CREATE INDEX IF NOT EXISTS alias_target ON alias (tenant, target);
CREATE INDEX IF NOT EXISTS session_move_parent ON session_move (tenant, (substr(facts, strpos(facts, '"parent_session":"')+18, 64) COLLATE "C"))
    WHERE strpos(facts, '"parent_session":"')>0;
CREATE INDEX IF NOT EXISTS session_move_owner ON session_move (tenant, (substr(facts, strpos(facts, '"owner_session":"')+17, 64) COLLATE "C"))
    WHERE strpos(facts, '"owner_session":"')>0;

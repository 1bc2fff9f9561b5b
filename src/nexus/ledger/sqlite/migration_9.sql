-- The list of sessions is read by the times of their threads.
CREATE INDEX thread_time ON thread (tenant, last_ms);
-- The names of a session, the sessions that it spawned and those that it owns are looked up.
CREATE INDEX alias_target ON alias (tenant, target);
CREATE INDEX session_move_parent ON session_move (tenant, substr(facts, instr(facts, '"parent_session":"')+18, 64))
    WHERE instr(facts, '"parent_session":"');
CREATE INDEX session_move_owner ON session_move (tenant, substr(facts, instr(facts, '"owner_session":"')+17, 64))
    WHERE instr(facts, '"owner_session":"');

CREATE TABLE migration (version BIGINT PRIMARY KEY, checksum TEXT NOT NULL, at_ms BIGINT NOT NULL);
CREATE TABLE thread (
    tenant TEXT COLLATE "C" NOT NULL, id BIGINT NOT NULL, parent BIGINT, fork_seq BIGINT NOT NULL,
    root_hash BYTEA NOT NULL, at_ms BIGINT NOT NULL, head_seq BIGINT NOT NULL, head_hash BYTEA NOT NULL,
    turn BIGINT NOT NULL, open_turn BIGINT NOT NULL, marks BIGINT NOT NULL, messages BIGINT NOT NULL,
    tokens BIGINT NOT NULL, first_ms BIGINT NOT NULL, last_ms BIGINT NOT NULL, erased BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    PRIMARY KEY (tenant, id), FOREIGN KEY (tenant, parent) REFERENCES thread (tenant, id)
) WITH (fillfactor = 70);
CREATE INDEX thread_parent ON thread (tenant, parent) WHERE parent IS NOT NULL;
CREATE TABLE session (
    tenant TEXT COLLATE "C" NOT NULL, label TEXT COLLATE "C" NOT NULL, number BIGINT NOT NULL, thread BIGINT,
    status TEXT COLLATE "C" NOT NULL, hash BYTEA NOT NULL,
    PRIMARY KEY (tenant, label), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
);
CREATE INDEX session_thread ON session (tenant, thread);
CREATE TABLE session_move (
    tenant TEXT COLLATE "C" NOT NULL, label TEXT COLLATE "C" NOT NULL, number BIGINT NOT NULL, thread BIGINT,
    facts TEXT NOT NULL, reason TEXT NOT NULL, at_ms BIGINT NOT NULL, hash BYTEA NOT NULL,
    PRIMARY KEY (tenant, label, number), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
);
CREATE INDEX session_move_thread ON session_move (tenant, thread);
CREATE TABLE alias (
    tenant TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, number BIGINT NOT NULL,
    target TEXT COLLATE "C", reason TEXT NOT NULL, at_ms BIGINT NOT NULL, hash BYTEA NOT NULL,
    PRIMARY KEY (tenant, name, number)
);
CREATE TABLE entry (
    tenant TEXT COLLATE "C" NOT NULL, thread BIGINT NOT NULL, seq BIGINT NOT NULL, kind TEXT COLLATE "C" NOT NULL,
    turn BIGINT NOT NULL, at_ms BIGINT NOT NULL, body TEXT NOT NULL, hash BYTEA NOT NULL,
    PRIMARY KEY (tenant, thread, seq), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
);
CREATE INDEX entry_mark ON entry (tenant, thread, seq) WHERE kind NOT IN ('messages', 'completed', 'failed');
CREATE TABLE message (
    id_row BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant TEXT COLLATE "C" NOT NULL, thread BIGINT NOT NULL,
    seq BIGINT NOT NULL, ord BIGINT NOT NULL, role TEXT NOT NULL, id TEXT NOT NULL, run_id TEXT NOT NULL,
    source TEXT NOT NULL, model TEXT NOT NULL, at_ms BIGINT NOT NULL, content TEXT NOT NULL, meta TEXT NOT NULL,
    openai BIGINT NOT NULL, anthropic BIGINT NOT NULL, gemini BIGINT NOT NULL, aside BIGINT NOT NULL,
    words TEXT COLLATE "C",
    UNIQUE (tenant, thread, seq, ord), FOREIGN KEY (tenant, thread, seq) REFERENCES entry (tenant, thread, seq)
);
CREATE INDEX message_words ON message USING gin (string_to_array(btrim(words), ' '));
CREATE TABLE idempotency (
    tenant TEXT COLLATE "C" NOT NULL, thread BIGINT NOT NULL, key TEXT COLLATE "C" NOT NULL, seq BIGINT NOT NULL,
    payload BYTEA NOT NULL,
    PRIMARY KEY (tenant, thread, key), FOREIGN KEY (tenant, thread, seq) REFERENCES entry (tenant, thread, seq)
);
CREATE TABLE decision (
    tenant TEXT COLLATE "C" NOT NULL, thread BIGINT NOT NULL, view TEXT COLLATE "C" NOT NULL, number BIGINT NOT NULL,
    kind TEXT NOT NULL, at_seq BIGINT NOT NULL, body TEXT NOT NULL, at_ms BIGINT NOT NULL, hash BYTEA NOT NULL,
    PRIMARY KEY (tenant, thread, view, number), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
);
CREATE TABLE assembly (
    tenant TEXT COLLATE "C" NOT NULL, thread BIGINT NOT NULL, seq BIGINT NOT NULL, view TEXT COLLATE "C" NOT NULL,
    manifest TEXT NOT NULL, at_ms BIGINT NOT NULL, hash BYTEA NOT NULL,
    PRIMARY KEY (tenant, thread, view, seq), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
);
CREATE TABLE view_head (
    tenant TEXT COLLATE "C" NOT NULL, thread BIGINT NOT NULL, view TEXT COLLATE "C" NOT NULL,
    decisions BIGINT NOT NULL, decision_hash BYTEA NOT NULL, assemblies BIGINT NOT NULL, assembly_seq BIGINT NOT NULL,
    assembly_hash BYTEA NOT NULL, hash BYTEA NOT NULL,
    PRIMARY KEY (tenant, thread, view), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
) WITH (fillfactor = 70);
CREATE TABLE tool_call (
    tenant TEXT COLLATE "C" NOT NULL, thread BIGINT NOT NULL, call_id TEXT COLLATE "C" NOT NULL, seq BIGINT NOT NULL,
    ord BIGINT NOT NULL, part BIGINT NOT NULL, name TEXT NOT NULL, is_result BIGINT NOT NULL, is_error BIGINT NOT NULL,
    PRIMARY KEY (tenant, thread, call_id, seq, ord, part),
    FOREIGN KEY (tenant, thread, seq) REFERENCES entry (tenant, thread, seq)
);
CREATE TABLE blob (
    tenant TEXT COLLATE "C" NOT NULL, sha256 TEXT COLLATE "C" NOT NULL, data BYTEA NOT NULL,
    PRIMARY KEY (tenant, sha256)
);
CREATE TABLE blob_use (
    tenant TEXT COLLATE "C" NOT NULL, sha256 TEXT COLLATE "C" NOT NULL, thread BIGINT NOT NULL, seq BIGINT NOT NULL,
    PRIMARY KEY (tenant, sha256, thread, seq),
    FOREIGN KEY (tenant, thread, seq) REFERENCES entry (tenant, thread, seq)
);
CREATE INDEX blob_use_entry ON blob_use (tenant, thread, seq);
CREATE TABLE calibration (
    tenant TEXT COLLATE "C" NOT NULL, provider TEXT COLLATE "C" NOT NULL, model TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL, factor_64 BIGINT NOT NULL, samples BIGINT NOT NULL, at_ms BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    PRIMARY KEY (tenant, provider, model, number)
);
CREATE TABLE calibration_head (
    tenant TEXT COLLATE "C" NOT NULL, provider TEXT COLLATE "C" NOT NULL, model TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL, hash BYTEA NOT NULL,
    PRIMARY KEY (tenant, provider, model)
);
CREATE TABLE lease (
    tenant TEXT COLLATE "C" NOT NULL, label TEXT COLLATE "C" NOT NULL, holder TEXT NOT NULL,
    expires_ms BIGINT NOT NULL,
    PRIMARY KEY (tenant, label)
);
CREATE TABLE event (
    tenant TEXT COLLATE "C" NOT NULL, id TEXT COLLATE "C" NOT NULL, session TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL, state TEXT COLLATE "C" NOT NULL, body TEXT NOT NULL, reason TEXT NOT NULL,
    turn BIGINT NOT NULL, accepted_ms BIGINT NOT NULL, changed_ms BIGINT NOT NULL, hash BYTEA NOT NULL,
    PRIMARY KEY (tenant, id), UNIQUE (tenant, number)
);
CREATE INDEX event_state ON event (tenant, state, session, number);
DO $$
DECLARE name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'thread', 'session', 'session_move', 'alias', 'entry', 'message', 'idempotency', 'decision', 'assembly',
        'view_head', 'tool_call', 'blob', 'blob_use', 'calibration', 'calibration_head', 'lease', 'event']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant_rows ON %I USING (tenant = current_setting(''nexus.tenant'', true))', name);
    END LOOP;
END $$;

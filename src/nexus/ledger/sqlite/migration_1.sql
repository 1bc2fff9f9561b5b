
CREATE TABLE migration (version INTEGER PRIMARY KEY, checksum TEXT NOT NULL, at_ms INTEGER NOT NULL) STRICT;
CREATE TABLE thread (
    tenant TEXT NOT NULL, id INTEGER NOT NULL, parent INTEGER, fork_seq INTEGER NOT NULL, root_hash BLOB NOT NULL,
    at_ms INTEGER NOT NULL, head_seq INTEGER NOT NULL, head_hash BLOB NOT NULL,
    PRIMARY KEY (tenant, id), FOREIGN KEY (tenant, parent) REFERENCES thread (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE session_move (
    tenant TEXT NOT NULL, label TEXT NOT NULL, number INTEGER NOT NULL, thread INTEGER NOT NULL, title TEXT NOT NULL,
    reason TEXT NOT NULL, at_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, label, number), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE entry (
    tenant TEXT NOT NULL, thread INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, turn INTEGER NOT NULL,
    at_ms INTEGER NOT NULL, body TEXT NOT NULL, hash BLOB NOT NULL,
    PRIMARY KEY (tenant, thread, seq), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX entry_mark ON entry (tenant, thread, seq) WHERE kind NOT IN ('messages', 'completed', 'failed');
CREATE TABLE message (
    id_row INTEGER PRIMARY KEY, tenant TEXT NOT NULL, thread INTEGER NOT NULL, seq INTEGER NOT NULL,
    ord INTEGER NOT NULL, role TEXT NOT NULL, id TEXT NOT NULL, run_id TEXT NOT NULL, source TEXT NOT NULL,
    model TEXT NOT NULL, at_ms INTEGER NOT NULL, content TEXT NOT NULL, meta TEXT NOT NULL,
    openai INTEGER NOT NULL, anthropic INTEGER NOT NULL, gemini INTEGER NOT NULL, aside INTEGER NOT NULL,
    UNIQUE (tenant, thread, seq, ord), FOREIGN KEY (tenant, thread, seq) REFERENCES entry (tenant, thread, seq)
) STRICT;
CREATE TABLE idempotency (
    tenant TEXT NOT NULL, thread INTEGER NOT NULL, key TEXT NOT NULL, seq INTEGER NOT NULL, payload BLOB NOT NULL,
    PRIMARY KEY (tenant, thread, key), FOREIGN KEY (tenant, thread, seq) REFERENCES entry (tenant, thread, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE decision (
    tenant TEXT NOT NULL, thread INTEGER NOT NULL, view TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL,
    at_seq INTEGER NOT NULL, body TEXT NOT NULL, at_ms INTEGER NOT NULL, hash BLOB NOT NULL,
    PRIMARY KEY (tenant, thread, view, number), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE assembly (
    tenant TEXT NOT NULL, thread INTEGER NOT NULL, seq INTEGER NOT NULL, view TEXT NOT NULL, manifest TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, thread, view, seq), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE blob (
    tenant TEXT NOT NULL, sha256 TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (tenant, sha256)
) STRICT, WITHOUT ROWID;

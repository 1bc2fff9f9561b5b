
CREATE TABLE session (
    tenant TEXT NOT NULL, label TEXT NOT NULL, number INTEGER NOT NULL, thread INTEGER, status TEXT NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (tenant, label), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_thread ON session (tenant, thread);
CREATE TABLE session_move_2 (
    tenant TEXT NOT NULL, label TEXT NOT NULL, number INTEGER NOT NULL, thread INTEGER, facts TEXT NOT NULL,
    reason TEXT NOT NULL, at_ms INTEGER NOT NULL, hash BLOB NOT NULL,
    PRIMARY KEY (tenant, label, number), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
) STRICT, WITHOUT ROWID;
INSERT INTO session_move_2 SELECT tenant, label, number, thread,
    CASE title WHEN '' THEN '{}' ELSE json_object('title', title) END, reason, at_ms, x'' FROM session_move;
DROP TABLE session_move;
ALTER TABLE session_move_2 RENAME TO session_move;
CREATE INDEX session_move_thread ON session_move (tenant, thread);
CREATE TABLE alias (
    tenant TEXT NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, target TEXT, reason TEXT NOT NULL,
    at_ms INTEGER NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (tenant, name, number)
) STRICT, WITHOUT ROWID;
ALTER TABLE thread ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread ADD COLUMN open_turn INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread ADD COLUMN marks INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread ADD COLUMN messages INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread ADD COLUMN first_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread ADD COLUMN last_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread ADD COLUMN erased INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread ADD COLUMN hash BLOB NOT NULL DEFAULT x'';
CREATE INDEX thread_parent ON thread (tenant, parent) WHERE parent IS NOT NULL;
ALTER TABLE assembly ADD COLUMN hash BLOB NOT NULL DEFAULT x'';
CREATE TABLE view_head (
    tenant TEXT NOT NULL, thread INTEGER NOT NULL, view TEXT NOT NULL, decisions INTEGER NOT NULL,
    decision_hash BLOB NOT NULL, assemblies INTEGER NOT NULL, assembly_seq INTEGER NOT NULL,
    assembly_hash BLOB NOT NULL, hash BLOB NOT NULL,
    PRIMARY KEY (tenant, thread, view), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE tool_call (
    tenant TEXT NOT NULL, thread INTEGER NOT NULL, call_id TEXT NOT NULL, seq INTEGER NOT NULL, ord INTEGER NOT NULL,
    part INTEGER NOT NULL, name TEXT NOT NULL, is_result INTEGER NOT NULL, is_error INTEGER NOT NULL,
    PRIMARY KEY (tenant, thread, call_id, seq, ord, part),
    FOREIGN KEY (tenant, thread, seq) REFERENCES entry (tenant, thread, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE blob_use (
    tenant TEXT NOT NULL, sha256 TEXT NOT NULL, thread INTEGER NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY (tenant, sha256, thread, seq), FOREIGN KEY (tenant, thread, seq) REFERENCES entry (tenant, thread, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_use_entry ON blob_use (tenant, thread, seq);
CREATE TABLE calibration (
    tenant TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL, number INTEGER NOT NULL,
    factor_64 INTEGER NOT NULL, samples INTEGER NOT NULL, at_ms INTEGER NOT NULL, hash BLOB NOT NULL,
    PRIMARY KEY (tenant, provider, model, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE calibration_head (
    tenant TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL, number INTEGER NOT NULL, hash BLOB NOT NULL,
    PRIMARY KEY (tenant, provider, model)
) STRICT, WITHOUT ROWID;
CREATE VIRTUAL TABLE search USING fts5 (text, content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 0');
CREATE VIEW turn AS SELECT tenant, thread, turn, min(seq) AS first_seq, max(seq) AS last_seq,
    CASE WHEN max(kind='completed') THEN 'completed' WHEN max(kind='failed') THEN 'failed' ELSE 'open' END AS status,
    min(at_ms) AS started_ms, max(CASE WHEN kind IN ('completed', 'failed') THEN at_ms END) AS ended_ms,
    max(json_extract(body, '$.model')) AS model, max(json_extract(body, '$.provider')) AS provider,
    max(json_extract(body, '$.role')) AS role, max(json_extract(body, '$.toolset')) AS toolset,
    max(json_extract(body, '$.tools')) AS tools_available,
    max(json_extract(body, '$.permissions')) AS permissions_granted,
    max(json_extract(body, '$.permissions_used')) AS permissions_used,
    max(json_extract(body, '$.source_event')) AS source_event, max(json_extract(body, '$.workspace')) AS workspace,
    sum(json_extract(body, '$.usage.input_tokens')) AS input_tokens,
    sum(json_extract(body, '$.usage.output_tokens')) AS output_tokens,
    sum(json_extract(body, '$.usage.cache_read_tokens')) AS cache_read_tokens,
    sum(json_extract(body, '$.usage.cache_write_tokens')) AS cache_write_tokens,
    sum(json_extract(body, '$.usage.reasoning_tokens')) AS reasoning_tokens
    FROM entry WHERE turn > 0 AND kind IN ('messages', 'completed', 'failed', 'lost') GROUP BY tenant, thread, turn;
CREATE VIEW compaction AS SELECT tenant, thread, seq, at_ms, json_extract(body, '$.covers_from') AS covers_from,
    json_extract(body, '$.covers_to') AS covers_to, json_extract(body, '$.first_kept') AS first_kept,
    json_extract(body, '$.summary') AS summary, json_extract(body, '$.type') AS type,
    json_extract(body, '$.trigger') AS "trigger", json_extract(body, '$.model') AS model,
    json_extract(body, '$.provider') AS provider, json_extract(body, '$.tokens_before') AS tokens_before,
    json_extract(body, '$.tokens_after') AS tokens_after, json_extract(body, '$.summary_tokens') AS summary_tokens,
    json_extract(body, '$.call_tokens') AS call_tokens, json_extract(body, '$.duration_ms') AS duration_ms
    FROM entry WHERE kind='compaction';
CREATE VIEW pin AS SELECT tenant, thread, seq, at_ms, kind, json_extract(body, '$.seq') AS message_seq,
    json_extract(body, '$.ord') AS message_ord, json_extract(body, '$.reason') AS reason
    FROM entry WHERE kind IN ('pin', 'unpin');
CREATE VIEW undone AS SELECT tenant, thread, seq, at_ms, json_extract(body, '$.of') AS undone_seq
    FROM entry WHERE kind='undone';

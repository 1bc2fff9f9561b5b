CREATE TABLE lease (
    tenant TEXT NOT NULL, label TEXT NOT NULL, holder TEXT NOT NULL, expires_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, label)
) STRICT, WITHOUT ROWID;

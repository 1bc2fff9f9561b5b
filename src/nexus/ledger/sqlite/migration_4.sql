
CREATE TABLE event (
    tenant TEXT NOT NULL, id TEXT NOT NULL, session TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL,
    body TEXT NOT NULL, reason TEXT NOT NULL, turn INTEGER NOT NULL, accepted_ms INTEGER NOT NULL,
    changed_ms INTEGER NOT NULL, hash BLOB NOT NULL,
    PRIMARY KEY (tenant, id), UNIQUE (tenant, number)
) STRICT;
CREATE INDEX event_state ON event (tenant, state, session, number);

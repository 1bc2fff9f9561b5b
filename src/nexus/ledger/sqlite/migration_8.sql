-- A key is looked up among all sessions: which of them has a client's message.
CREATE INDEX idempotency_key ON idempotency (tenant, key);

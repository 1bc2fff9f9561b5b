"""Everything that knows a provider: request bodies and replies, error classification, prompt-cache rules."""

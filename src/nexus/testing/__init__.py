"""For programs that test against Nexus: a ledger in memory and the conformance suite for ledger stores."""

"""The documented interface of the workspace builder's sessions (document 003), as a thin door on the ledger."""

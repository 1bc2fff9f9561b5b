"""Document 003's interface of the workspace builder's sessions."""

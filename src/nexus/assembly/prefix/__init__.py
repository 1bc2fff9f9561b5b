"""Compare the context of a call with the one before it: what the prompt cache can reuse, and where it breaks."""

"""Comparison of a call's prompt with the last one: what the prompt cache can reuse, and where it breaks."""

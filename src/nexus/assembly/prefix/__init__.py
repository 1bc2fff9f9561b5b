"""Comparison of a call's prompt with the last one: the part that the prompt cache can reuse, and the break."""

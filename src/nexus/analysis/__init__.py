"""Recorded calls looked at again: replay, explain, diff, what-if."""

"""Profiles of one's own: files, the values that they make, and what their order costs."""

"""Situations from public reports: what comes in, from whom, and what must go out."""

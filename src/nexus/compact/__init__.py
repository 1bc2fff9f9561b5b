"""Compaction's text: what must not vanish, a summary made of it, and what a summariser is asked and held to. Pure."""

"""Readers of other tools' session files."""

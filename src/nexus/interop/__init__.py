"""Readers and writers of other tools' session files."""

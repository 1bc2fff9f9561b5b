"""Skill folders: discovery, parsing, lint, last use."""

"""Tests of skills: what is read of a SKILL.md, what a context shows of it, and the commands."""

"""Recorded sessions played again through an engine under other conditions: prompt-cache policies, profile orders."""

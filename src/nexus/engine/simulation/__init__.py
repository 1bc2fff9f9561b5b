"""Simulations that replay recorded sessions through an engine: prompt-cache policies and profile orders."""

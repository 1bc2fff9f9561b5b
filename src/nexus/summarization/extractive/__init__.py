"""Summaries without a model: deterministic extraction of what later calls need. Pure."""

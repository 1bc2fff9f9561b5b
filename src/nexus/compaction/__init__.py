"""Carrying out a compaction: ask for a summary, judge it, store it. What is summarised is chosen in `fit.plan`."""

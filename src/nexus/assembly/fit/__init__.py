"""Fitting: repair, window, cuts, compaction plans. Pure."""

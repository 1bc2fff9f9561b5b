"""Analysis of recorded calls: replay, explain, diff, what-if."""

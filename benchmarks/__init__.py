"""What Nexus costs and saves, measured: `python -m benchmarks [NAME ...]` from the root; `results` has the names.

Each module measures one thing and returns an `Outcome`: tables and the targets they are compared with. Real sessions
are read from `../shared/data` (or `NEXUS_DATA`). Times are medians of many rounds, CPU time beside wall time, and what
is compared was run in one go, because machines differ and are noisy.
"""

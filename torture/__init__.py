"""What the ledger promises under kills, power losses, faults and contention, and what a context does in any session.

`python -m torture [names] [--rounds N] [--seed S] [--json]` from the root. Each module has `run(rounds, seed, folder,
progress)`, which raises AssertionError with what was lost and otherwise returns figures. The processes that write are
forked from one that never opens a ledger; so are those that check. POSIX systems only.
"""

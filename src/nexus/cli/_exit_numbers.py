"""The exit codes of the command line. Which error has which is in `_exit_codes.py`, which `nexus --help` does not import."""

OTHER_ERROR = 1
WRONG_INPUT = 2
OVER_BUDGET = 3
UNREADABLE = 4
LEDGER_ERROR = 5
MODEL_FAILED = 6
LIMIT_REACHED = 7
STOPPED = 130
"""128 + SIGINT, as shells report an interrupted program."""

"""The broken builds of `torture.broken_identity`: each is found by a few users who talk at once.

By turns and lists the order is the same each time; among brokers and services it depends on the clock, too.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from torture.identity import FEW_USERS, Way, by_brokers, by_lists, by_services, by_turns, one_ledger

LEDGERS: Final = 8
"""Ledgers until a build is found, at most."""


def prepare() -> None:
    """Do nothing: all is imported."""


def users_of_turns(folder: Path) -> int:
    """Let users talk by turns and calls; return the number of contexts."""
    return _talk(folder, by_turns)


def users_of_lists(folder: Path) -> int:
    """Let users talk by lists; return the number of contexts."""
    return _talk(folder, by_lists)


def users_of_brokers(folder: Path) -> int:
    """Let users send events to brokers; return the number of contexts."""
    return _talk(folder, by_brokers)


def users_of_services(folder: Path) -> int:
    """Let users send runs to services; return the number of contexts."""
    return _talk(folder, by_services)


def _talk(folder: Path, way: Way) -> int:
    return sum(
        one_ledger(folder / f"{number}.db", random.Random(f"1 {number}"), FEW_USERS, (way,))["contexts"]
        for number in range(LEDGERS)
    )


CASES: Final = ()
"""`torture.identity` is the case that must pass."""

FOUND_BY: Final = (
    ("nameless_events", users_of_turns, "was taken for another one"),
    ("uncompared_events", users_of_turns, "violations"),
    ("unchecked_turns", users_of_turns, "violations"),
    ("unchecked_fences", users_of_turns, "a program that another one replaced wrote"),
    ("local_profiles", users_of_turns, "of users' profiles"),
    ("nameless_lists", users_of_lists, "of another principal"),
    ("short_overlaps", users_of_lists, "is not the client's list"),
    ("stored_texts", users_of_lists, "is not the client's list"),
    ("sessionless_events", users_of_brokers, "was taken for another one"),
    ("joined_senders", users_of_brokers, "violations"),
    ("foreign_steering", users_of_brokers, "violations"),
    ("reused_workers", users_of_brokers, "the reports of the worker"),
    ("unowned_runs", users_of_services, " asked for the "),
    ("unowned_contexts", users_of_services, "asked for the context"),
    ("foreign_requests", users_of_services, "is not of the user"),
    ("shared_replies", users_of_services, "violations"),
)
"""Each broken build, the users who find it, and a part of what the judge reports."""

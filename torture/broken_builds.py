"""Each build that is broken on purpose goes through the torture that is to find it, until a random round does.

The same builds are found at named points by `torture.faults`, which the tests run. Here the tortures themselves are
proven: their random kills and cuts hit, too, if they have enough rounds.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Final

from torture import broken, fault_identity
from torture.figures import Figures, Progress, require
from torture.processes import answer

NAME = "broken_builds"
ROUNDS = 1_000
"""Rounds of one torture with one build, at most: it ends with the first that finds it."""

FOUND_BY: Final = (
    ("synchronous_normal", "power_loss", "some are lost"),
    ("deferred_begin", "contention", "refused as busy"),
    ("content_hashes", "bit_flips", "changed something silently"),
    ("copied_backup", "backup_load", ""),
    ("forgotten_keys", "kill_appends", "repeated, added"),
    ("split_commits", "kill_appends", "doubled or in part"),
    ("unexpected_marks", "kill_compactions", "was planned after"),
    ("swallowed_errors", "io_errors", "some are lost"),
    ("swallowed_errors", "disk_full", "some are lost"),
    ("assumed_cuts", "mixed_load", "body hash differs"),
    *((build, "identity", told) for build, _, told in fault_identity.FOUND_BY),
    ("plain_marks", "frames", "is left"),
    ("single_backslashes", "frames", "undone wrongly"),
    ("unpaired_results", "lists", "lost: "),
    ("single_results", "lists", "lost: "),
    ("early_acceptance", "kill_broker", "was accepted, and is lost"),
    ("renamed_repeats", "kill_broker", "were never delivered"),
    ("early_settlement", "kill_broker", "is done,"),
    ("late_delivery", "kill_broker", "were not delivered"),
    ("new_workers", "kill_broker", "have several workers"),
    ("unleased_sessions", "kill_broker", ""),
    ("forgotten_settings", "kill_server", "has the settings"),
    ("unresumed_requests", "kill_server", "given up"),
    ("renamed_requests", "kill_server", ""),
    ("unheld_ends", "kill_proxy", "no session has"),
    ("unawaited_records", "kill_proxy", "no session has"),
    ("mixed_conversations", "kill_proxy", "no session has"),
    ("equal_retries", "overflow", "a retry has"),
    ("forgotten_limits", "overflow", "are taken as the limit"),
    ("trusted_replies", "overflow", "was taken for an answer"),
    ("recorded_failures", "overflow", "were stored"),
    ("untiring_ladder", "overflow", "for one compaction"),
    ("believed_summaries", "overflow", "what a summariser was told not to write is in a prompt"),
)
"""Each broken build, the torture that finds it, and a part of what that one reports."""


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Breaks one thing after the other. Raises AssertionError with the builds that were not found."""
    missed: list[str] = []
    for number, (build, name, told) in enumerate(FOUND_BY):
        room = folder / f"{build}-{name}"
        room.mkdir()
        try:
            answer(_broken, build, name, rounds, seed, room)
            missed.append(f"{build}: {rounds} rounds of {name} did not find it")
        except AssertionError as error:
            if told not in str(error):
                missed.append(f"{build}: {name} reports {error}, not {told!r}")
        progress(number + 1, len(FOUND_BY))
    require(not missed, "\n".join(missed))
    return Figures(NAME, rounds, {"broken builds found by a torture": len(FOUND_BY)})


def _broken(build: str, name: str, rounds: int, seed: int, folder: Path) -> None:
    broken.apply(build)
    import_module(f"torture.{name}").run(rounds, seed, folder, lambda _done, _all: None)

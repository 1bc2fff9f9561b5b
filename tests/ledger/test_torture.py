"""The tortures pass, in a few hundred rounds each, and each build that is broken on purpose is found by one of them.

`python -m torture` runs them in full; docs/reliability.md says what they prove.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def tortured(folder: Path, name: str, rounds: int, broken: str = "") -> tuple[int, dict[str, Any]]:
    """The exit code and the report of one torture, run as a program of its own: it forks, and a test's process may not."""
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "torture",
        name,
        "--rounds",
        str(rounds),
        "--json",
        "--folder",
        str(folder),
    ]
    if broken:
        command += ["--broken", broken]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


ROUNDS = {
    "kill_appends": 200,
    "kill_compactions": 200,
    "power_loss": 250,
    "io_errors": 30,
    "disk_full": 200,
    "bit_flips": 500,
    "pages": 300,
    "contention": 80,
    "backup_load": 16,
    "fitting": 100,
    "frames": 500,
}

REACHED = {
    "kill_appends": "kills inside a commit",
    "kill_compactions": "kills inside the commit of a compaction or undo",
    "power_loss": "writes dropped",
    "io_errors": "append: LedgerError",
    "disk_full": "ENOSPC, append: LedgerFull",
    "bit_flips": "reported by an error of ours",
    "pages": "zeroed page: reported",
    "contention": "appends to one session",
    "backup_load": "appends in the backups",
    "fitting": "bodies validated",
    "frames": "marks in texts",
}
"""What a run must have met to have tried anything; the number counts how often."""


@pytest.mark.parametrize("name", ROUNDS)
def test_nothing_is_lost_under_torture(name: str, tmp_path: Path, record_property: Any) -> None:
    code, report = tortured(tmp_path, name, ROUNDS[name])
    assert report["failed"] == {}
    assert code == 0
    (found,) = report["tortures"]
    assert sum(count for what, count in found["counts"].items() if what.startswith(REACHED[name])) > 0
    record_property("figures", {f"rounds of {name}": found["rounds"]})


BROKEN = [
    ("synchronous_normal", "power_loss", 60, "some are lost"),
    ("deferred_begin", "contention", 80, "refused as busy"),
    ("content_hashes", "bit_flips", 150, "changed something silently"),
    ("copied_backup", "backup_load", 8, ""),
    ("forgotten_keys", "kill_appends", 40, "repeated, added"),
    ("split_commits", "kill_appends", 60, "doubled or in part"),
    ("unexpected_marks", "kill_compactions", 40, "was planned after"),
    ("swallowed_errors", "io_errors", 16, "some are lost"),
    ("swallowed_errors", "disk_full", 20, "some are lost"),
    ("plain_marks", "frames", 300, "is left"),
    ("single_backslashes", "frames", 300, "undone wrongly"),
]


@pytest.mark.parametrize(("broken", "name", "rounds", "told"), BROKEN, ids=[f"{b[0]}-{b[1]}" for b in BROKEN])
def test_a_broken_build_is_found(broken: str, name: str, rounds: int, told: str, tmp_path: Path) -> None:
    code, report = tortured(tmp_path, name, rounds, broken)
    assert code == 1
    assert told in report["failed"][name]

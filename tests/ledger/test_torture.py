"""The tortures pass: faults at named points on every change, a few hundred random rounds of each in `make test-all`.

`python -m torture` runs them in full; docs/reliability.md says what they prove.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torture.broken import BUILDS

from support.nats_server import require_nats_server
from support.postgres import require_packages

ROOT = Path(__file__).parents[2]


def tortured(folder: Path, name: str, rounds: int = 1) -> tuple[int, dict[str, Any]]:
    """Return the exit code and report of a torture. It is a program: it forks, and a test's process may not."""
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
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


ROUNDS = {
    "kill_appends": 200,
    "kill_compactions": 200,
    "kill_turns": 60,
    "kill_broker": 60,
    "kill_server": 20,
    "kill_proxy": 12,
    "power_loss": 250,
    "io_errors": 30,
    "disk_full": 200,
    "bit_flips": 500,
    "pages": 300,
    "contention": 80,
    "mixed_load": 4,
    "identity": 4,
    "backup_load": 16,
    "fitting": 100,
    "frames": 500,
    "kill_postgres": 60,
    "postgres_writers": 1,
    "services": 10,
}

REACHED = {
    "power_loss": "writes dropped",
    "io_errors": "append: LedgerError",
    "disk_full": "ENOSPC, append: LedgerFull",
    "bit_flips": "reported by an error of ours",
    "pages": "zeroed page: reported",
    "contention": "appends to one session",
    "mixed_load": "calls replayed under an earlier cut",
    "identity": "windows with earlier messages put back",
    "backup_load": "appends in the backups",
    "fitting": "bodies validated",
    "frames": "marks in texts",
    "kill_server": "PostgreSQL: agents listed after a kill",
    "kill_postgres": "appends acknowledged after the server was killed",
    "postgres_writers": "appends to them",
    "services": "kills: process",
}
"""What a run must have met to have tried anything; the number counts how often.

Where random kills hit is luck, so nothing is asked of them: `faults` kills at each point inside a commit.
"""


def test_torture_finds_every_broken_build_at_named_points(tmp_path: Path, record_property: Any) -> None:
    code, report = tortured(tmp_path, "faults")
    assert report["failed"] == {}
    assert code == 0
    (found,) = report["tortures"]
    assert all(count > 0 for count in found["counts"].values())
    assert found["counts"]["broken builds, each found at its point"] == len(BUILDS)
    record_property("figures", {"faults at named points": found["rounds"]})


def test_calls_of_a_mixed_load_are_replayed(tmp_path: Path) -> None:
    code, report = tortured(tmp_path, "mixed_load")
    assert report["failed"] == {}
    assert code == 0
    counts = report["tortures"][0]["counts"]
    assert counts["calls replayed"] > 50
    assert counts["calls replayed with a cut of their own"] > 0


def test_each_of_many_users_has_their_own_words_and_answers(tmp_path: Path) -> None:
    code, report = tortured(tmp_path, "identity")
    assert report["failed"] == {}
    assert code == 0
    counts = report["tortures"][0]["counts"]
    assert counts["contexts"] > 800
    assert counts["windows with earlier messages put back"] > 0
    assert counts["late replies"] > 0
    assert counts["contexts of workers"] > 0
    assert counts["contexts: services"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUNDS)
def test_nothing_is_lost_under_torture(name: str, tmp_path: Path, record_property: Any) -> None:
    if "postgres" in name or name in ("kill_server", "services"):
        require_packages()
    if name == "services":
        require_nats_server()
    code, report = tortured(tmp_path, name, ROUNDS[name])
    assert report["failed"] == {}
    assert code == 0
    (found,) = report["tortures"]
    if name in REACHED:
        assert sum(count for what, count in found["counts"].items() if what.startswith(REACHED[name])) > 0
    record_property("figures", {f"rounds of {name}": found["rounds"]})

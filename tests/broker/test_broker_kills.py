"""A broker's process is killed after named writes to its ledger, and another goes on.

`python -m torture kill_broker` kills at random times. That these checks find broken brokers is tested with the other
tortures (tests/ledger/test_torture.py).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from torture.fault_brokers import NAMED

ROOT = Path(__file__).parents[2]


def killed(case: str, folder: Path) -> int:
    """Return the number of kills of a case. It runs in a program: it forks, and a test's process may not."""
    program = (
        "from pathlib import Path\nfrom torture import fault_brokers\n"
        f"fault_brokers.prepare()\nprint(fault_brokers.{case}(Path({str(folder)!r})))"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_events_are_settled_once_after_a_kill_at_each_kind_of_write(tmp_path: Path) -> None:
    assert killed("killed_brokers", tmp_path) == len(NAMED)


@pytest.mark.slow
def test_events_are_settled_once_after_a_kill_at_every_write(tmp_path: Path) -> None:
    assert killed("killed_writes", tmp_path) > 5 * len(NAMED)

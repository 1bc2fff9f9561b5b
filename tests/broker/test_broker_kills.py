"""A broker's process is killed at operations of its ledger, before them and after them, and another goes on.

`python -m torture kill_broker` kills at random times; it and this test check the same.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STEP = 61
"""Every so many points of about four hundred, before and after operations in turn."""


def test_events_are_answered_once_after_a_kill_at_named_operations(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path\nfrom torture.kill_broker import killed_operations\n"
        f"print(killed_operations(Path({str(tmp_path)!r}), {STEP}))"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3

"""docs/architecture.md: the paths that it names exist, and it states the import rule that the tests check."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_every_path_exists() -> None:
    rows = re.findall(r"^\| (.+\?) \| `(src/nexus/[^`]+)` \|$", PAGE, re.MULTILINE)
    assert len(rows) >= 20
    assert [path for _, path in rows if not (ROOT / path).exists()] == []
    assert [path for path in re.findall(r"# (src/nexus/\S+)", PAGE) if not (ROOT / path).exists()] == []


def test_every_room_is_shown() -> None:
    picture = PAGE.split("```text")[1]
    rooms = [path.name + ("/" if path.is_dir() else "") for path in (ROOT / "src" / "nexus").iterdir()]
    assert [room for room in rooms if room[0] not in "_." and room != "py.typed" and room not in picture] == []

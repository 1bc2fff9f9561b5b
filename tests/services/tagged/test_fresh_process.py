"""What is read from document 000's blocks in a process that knows nothing else is what was put into them."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from typing import Any

from contracts.modules import ROOT
from laws.frame_texts import DISGUISES, MARKS, UNSEEN
from nexus.services.tagged import (
    Ai,
    Human,
    ToolUse,
    constraints_block,
    friends_block,
    memory_block,
    moment_block,
    mood_block,
)

TIME = "2025-12-10 15:30"
HOSTILE = [
    *(disguise(mark) for mark, disguise in product(MARKS, DISGUISES)),
    *(f"{mark[:3]}{char}{mark[3:]}" for mark, char in product(MARKS, UNSEEN)),
]
WHOLE = "\n".join([*HOSTILE, moment_block("2025-12-10 16:00:00+08:00", HOSTILE[0])])
TEXTS = [*HOSTILE, WHOLE]
ENTRIES = [
    *(Human(TIME, text) for text in TEXTS),
    *(Ai(None, (text, (ToolUse("web_search", "query", "AI"),))) for text in HOSTILE),
]

CHILD = """
import json, sys
import msgspec
from nexus.services.tagged import parse_constraints, parse_friends, parse_moment, parse_mood
from nexus.services.tagged import parse_memory
given = json.load(sys.stdin)
readers = {"moment": parse_moment, "friends": parse_friends, "mood": parse_mood, "constraints": parse_constraints}
read = {name: [reader(block) for block in given[name]] for name, reader in readers.items()}
json.dump({**read, "memory": msgspec.to_builtins(parse_memory(given["memory"]))}, sys.stdout)
"""


def test_fresh_process_parses_every_block() -> None:
    """Document 000, "Message Structure": every text comes back from its block, whoever reads it."""
    blocks: dict[str, Any] = {
        "moment": [moment_block("2025-12-10 16:00:00+08:00", text) for text in TEXTS],
        "friends": [friends_block(text) for text in TEXTS],
        "mood": [mood_block(text) for text in TEXTS],
        "constraints": [constraints_block(text) for text in TEXTS],
        "memory": memory_block(ENTRIES),
    }
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n{CHILD}"],
        input=json.dumps(blocks),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    assert [text for _, text in read["moment"]] == TEXTS
    assert read["friends"] == read["mood"] == read["constraints"] == TEXTS
    assert [one.get("text") or one["parts"][0] for one in read["memory"]] == [*TEXTS, *HOSTILE]

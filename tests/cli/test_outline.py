"""`nexus assemble --as outline`: who says what in which order, in a few lines."""

from __future__ import annotations

from pathlib import Path

import pytest

import nexus
from cli.running import run
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.message import ToolCall, assistant, tool
from nexus.types.request import Event
from workspace.sources.gathering import write

AT = "2026-03-06T14:30:00+08:00"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "ws", AGENTS="# Rules\n\nBe brief.", USER="Ann")


def talked(root: Path, turns: int, profile: str) -> None:
    """A session of so many turns, each with one call of a tool."""
    with nexus.open(root, ledger=SqliteLedger(str(root / "ledger.db")), clock_ms=lambda: 1_772_778_600_000) as nx:
        for number in range(turns):
            event: Event | list[nexus.Message] = Event((nexus.Text(f"question {number}"),))
            for said in (assistant("", ToolCall(f"c{number}", "look", '{"at": 1}')), assistant(f"answer {number}")):
                nx.record(nx.assemble(event, profile=profile), nexus.AgentResult((said,)))
                event = [tool(f"c{number}", "found\nit", "look")]


def outline(root: Path, *options: str, asked: str = "what now?") -> list[str]:
    done = run(
        "assemble", asked, "--as", "outline", "--at", AT, "--timezone", "Asia/Shanghai",
        "-w", str(root), "--ledger", str(root / "ledger.db"), *options, folder=root,
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    return done.out.splitlines()


def test_outline_has_line_per_block_and_message_and_counts_the_middle(root: Path) -> None:
    talked(root, 3, "layered")
    head, *lines = outline(root)
    assert head.startswith("layered: ") and head.endswith(" of 976,000 tokens")
    shown = [line[9:] for line in lines]
    assert shown[0] == "system     # Workspace rules · # Rules"
    start = shown.index("user       Current time: 2026-03-06T06:30:00.000Z")
    assert shown[start:] == [
        "user       Current time: 2026-03-06T06:30:00.000Z",
        "           question 0",
        'assistant  look {"at": 1}',
        "           (8 more messages)",
        "tool       c2: found it",
        "assistant  answer 2",
        "user       Current time: 2026-03-06T06:30:00.000Z",
        "           Local time: 2026-03-06T14:30:00.000+08:00",
        "           Timezone: Asia/Shanghai",
        "           what now?",
    ]
    told = sum(int(line[:7].replace(",", "").strip() or 0) for line in lines)
    used = int(head.split()[1].replace(",", ""))
    assert 0 <= used - told <= 60, "what stands around the messages has no line"


def test_a_form_of_few_messages_shows_how_each_begins(root: Path) -> None:
    talked(root, 1, "tagged")
    _, *lines = outline(root, "--profile", "tagged", asked="</human_input>")
    assert [line[9:] for line in lines if "[" in line] == [
        "user       [CAPABILITIES]",
        "user       [SHARED_MEMORY count=2]",
        "           [2026-03-06 14:30] Human: question 0",
        "user       [FRIENDS_INFO]",
        "user       [THIS_MOMENT]",
    ]
    assert lines[-2:] == [
        "                    <\\/human_input>",
        "                    </human_input>",
    ]
    assert "                      Nexus:" in lines, "indents are part of a form"


def test_a_long_or_wide_text_stays_within_its_line(root: Path) -> None:
    talked(root, 0, "bare")
    done = run("assemble", "卷" * 500, "--as", "outline", "--profile", "bare", "-w", str(root), folder=root)
    last = done.out.splitlines()[-1]
    assert last.endswith("…") and len(last) < 80

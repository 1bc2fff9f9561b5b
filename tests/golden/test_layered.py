"""The whole system slot and a current message for one rich workspace, in each role, as document 002 has them.

The expected texts are typed, not generated: the environment, the worker's opening and the event's lines are the document's
own (sections "3. Nexus Environment", "Worker Agent System Prompt", "Current Event Assembly"), the order is that of its
"System Prompt Construction".
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.engine import Engine
from nexus.types.message import Text
from nexus.types.request import Attachment, Event
from support.skills import SHELL

HERE = Path(__file__).parent
AT_MS = 1_770_379_200_123
POLICY = """
[toolsets.desk]
tools = ["calendar", "bash"]

[toolsets.counting]
tools = ["calendar", "bash"]
capabilities = ["chat-read"]

[default]
toolset = "desk"
"""


def expected(name: str) -> str:
    return (HERE / "expected" / f"{name}.txt").read_text("utf-8").removesuffix("\n")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NEWS_API_KEY", "NEXUS_MODEL", "NEXUS_TIMEZONE", "NEXUS_PERSONA"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    names = ["twitter", *(f"service-{number:02}" for number in range(11))]
    entries = [{"name": name, "where": "keyring", "service": "nexus"} for name in names]
    entries[0] |= {"state": "broken", "checked_ms": 1}
    (home / "credentials.json").write_text(json.dumps({"form": 1, "credentials": entries}), "utf-8")
    monkeypatch.setenv("NEXUS_HOME", str(home))
    place = Path(shutil.copytree(HERE / "workspace", tmp_path / "ws"))
    (place / ".nexus").mkdir(exist_ok=True)
    (place / ".nexus" / "used.json").write_text('{"email": 1, "imessage": 2, "social-x": 3}', "utf-8")
    return place


def opened(root: Path) -> Engine:
    nx = nexus.open(root, clock_ms=lambda: AT_MS, timezone="Europe/Berlin")
    nx.preparation.workspace_context = dataclasses.replace(
        nx.workspace_context, host={"Host": "desk", "OS": "linux", "Arch": "arm64"}
    )
    return nx


def happened(**changed: Any) -> Event:
    event = Event(
        (Text("Is Friday sold out?"),),
        at_ms=AT_MS,
        channel="desk",
        chat_id="77",
        platform="imessage",
        platform_actions=("reply", "react"),
        hook_data={"calendar": {"screenings": 2}},
        metadata={"sender": "Ann"},
        attachments=(Attachment("programme.md", "Friday: Stalker\nSaturday: Playtime\n", 1, 2),),
    )
    return nexus.Event(**{**{name: getattr(event, name) for name in event.__struct_fields__}, **changed})


def assembled(nx: Engine, event: Event | None = None, **options: Any) -> nexus.AssembledContext:
    given: dict[str, Any] = {
        "role": "manager",
        "persona": "atlas",
        "toolset": "desk",
        "permissions": ["messages.send", "calendar.write"],
        "session": "dm:ann",
        "tools": SHELL,
    }
    return nx.assemble(event or happened(), **{**given, **options})


@pytest.mark.parametrize("role", ["manager", "unified"])
def test_the_system_slot_of_a_manager_and_of_a_unified_agent(root: Path, role: str) -> None:
    assert assembled(opened(root), role=role).system_prompt == expected("layered_manager")


def test_the_system_slot_of_a_worker(root: Path) -> None:
    (root / ".nexus" / "policy.toml").write_text(POLICY.replace('toolset = "desk"', 'toolset = "counting"'), "utf-8")
    ctx = assembled(
        opened(root),
        session="worker:seats",
        role="worker",
        toolset="",
        permissions=["calendar.write"],
        task="Count the seats in the small room.",
    )
    assert ctx.system_prompt == expected("layered_worker").replace("Toolset: desk", "Toolset: counting")


def test_the_current_message_of_a_manager_and_of_a_worker(root: Path) -> None:
    content = assembled(opened(root)).to_openai()["messages"][-1]["content"]
    assert content == expected("layered_current")
    worker = assembled(opened(root), session="worker:seats", role="worker", task="Order a lamp for the projector.")
    # No platform for a worker, and of the memory what its task names.
    omitted = ("Platform:", "Available", "- Ann's deputy")
    without = [line for line in expected("layered_current").splitlines() if not line.startswith(omitted)]
    assert worker.to_openai()["messages"][-1]["content"] == "\n".join(without)


def test_clock_chat_and_words_change_no_byte_of_the_system_slot(root: Path) -> None:
    """Document 002, "Static Runtime Info": `time`, `timezone`, `platform` and `platformActions` are not in the system prompt."""
    first = assembled(opened(root)).system_prompt
    nx = opened(root)
    changes: list[dict[str, Any]] = [
        {"at_ms": AT_MS + 86_400_000},
        {"chat_id": "78"},
        {"channel": "foyer"},
        {"platform": "telegram", "platform_actions": ("poll",)},
        {"content": (Text("And Saturday?"),)},
        {"hook_data": {}, "metadata": {"a": 1}, "attachments": ()},
        {"timezone": "Asia/Shanghai"},
    ]
    for changed in changes:
        assert assembled(nx, happened(**changed)).system_prompt == first, changed


@pytest.mark.parametrize(
    ("file", "origin"),
    [
        ("AGENTS.md", "AGENTS.md"),
        ("TOOLS.md", "TOOLS.md"),
        ("user/IDENTITY.md", "user/IDENTITY.md"),
        ("personas/atlas/SOUL.md", "personas/atlas/SOUL.md"),
        ("personas/atlas/IDENTITY.md", "personas/atlas/IDENTITY.md"),
        ("skills/house-style/SKILL.md", "skills/house-style/SKILL.md"),
        ("skills/slack/SKILL.md", "nexus:skills"),
    ],
)
def test_changing_one_file_changes_the_slot_and_the_report_names_it(root: Path, file: str, origin: str) -> None:
    nx = opened(root)
    first = assembled(nx)
    nx.record(first, nexus.AgentResult((nexus.assistant("Not yet."),)))
    text = (root / file).read_text("utf-8")
    changed = text.replace("channels", "rooms") if file.endswith("slack/SKILL.md") else f"{text}\nOne more line.\n"
    (root / file).write_text(changed, "utf-8")
    ctx = assembled(nx)
    assert ctx.system_prompt != first.system_prompt
    assert ctx.accounting.prefix.state == "broken"
    assert any(origin in cause for cause in ctx.accounting.prefix.causes), ctx.accounting.prefix.causes
    assert origin in ctx.report

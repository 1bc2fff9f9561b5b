"""Calls of shells, patches and computers in the Responses format: no cut comes between one and its output."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus.assembly.fit import cut_history, repair
from nexus.types.message import Message

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCREENSHOT = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PIXEL}"}
DONE = {"stdout": "s " * 60, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
KINDS: dict[str, tuple[dict[str, Any], Any]] = {
    "apply_patch": ({"operation": {"type": "update_file", "path": "a", "diff": "d " * 60}}, "o " * 60),
    "shell": ({"action": {"commands": ["ls"]}}, [DONE]),
    "computer": ({"action": {"type": "screenshot"}, "pending_safety_checks": []}, SCREENSHOT),
    "local_shell": ({"action": {"type": "exec", "command": ["ls"], "env": {}}}, "q " * 60),
}


def call_items(kind: str, number: int) -> list[dict[str, Any]]:
    fields, output = KINDS[kind]
    call_id = f"call_{number}"
    call = {"type": f"{kind}_call", "id": f"item_{number}", "call_id": call_id, "status": "completed", **fields}
    if kind == "local_shell":
        return [call, {"type": "local_shell_call_output", "id": call_id, "output": output}]
    return [call, {"type": f"{kind}_call_output", "call_id": call_id, "output": output}]


@st.composite
def lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Turns with calls one after the other and in parallel, of which the last one may wait for the model."""
    items: list[dict[str, Any]] = []
    number = 0
    for turn in range(draw(st.integers(3, 12))):
        items.append({"role": "user", "content": f"turn {turn} " + "x y " * 40})
        for _ in range(draw(st.integers(0, 3))):
            kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=2))
            pairs = [call_items(kind, number + place) for place, kind in enumerate(kinds)]
            number += len(kinds)
            items += [call for call, _ in pairs] + [output for _, output in pairs]
        text = {"type": "output_text", "text": "done " * 20, "annotations": []}
        items.append(
            {"type": "message", "role": "assistant", "id": f"m_{turn}", "status": "completed", "content": [text]}
        )
    ends = [place for place, item in enumerate(items, 1) if item.get("role") == "user" or ends_calls(items, place)]
    return items[: draw(st.sampled_from(ends[-6:]))]


def ends_calls(items: list[dict[str, Any]], place: int) -> bool:
    """Return True behind the last output of calls that were made at once."""
    return is_output(items[place - 1]) and not is_output(items[place])


def is_output(item: dict[str, Any]) -> bool:
    return str(item.get("type", "")).endswith("_output")


def halves(items: list[dict[str, Any]]) -> set[str]:
    """Return the ids of calls without an output, and of outputs without a call."""
    calls = {item["call_id"] for item in items if str(item.get("type", "")).endswith("_call")}
    return calls ^ {item.get("call_id") or item["id"] for item in items if is_output(item)}


def shown_items(items: list[dict[str, Any]], budget: int) -> list[dict[str, Any]]:
    with nexus.open(ledger=":memory:") as nx:
        try:
            return nx.mirror(items, provider="responses", model="gpt-5", budget=budget).to_responses()["input"]
        except nexus.BudgetTooSmall:
            return []


@settings(max_examples=150)
@given(lists(), st.sampled_from([700, 1_000, 2_000, 4_000, 9_000]))
def test_calls_and_outputs_stay_together(items: list[dict[str, Any]], budget: int) -> None:
    assert halves(items) == set()
    assert halves(shown_items(items, budget)) == set()


def test_outputs_that_begin_groups_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_none(_: Message) -> bool:
        return False

    monkeypatch.setattr(repair, "is_program_output", is_none)
    monkeypatch.setattr(cut_history, "is_program_output", is_none)
    items = [
        item
        for turn in range(12)
        for item in (
            {"role": "user", "content": "x y " * 40},
            *call_items("apply_patch", turn),
            *call_items("shell", 99 + turn),
        )
    ]
    assert any(halves(shown_items(items, budget)) for budget in (1_000, 1_500, 2_000, 3_000))


def test_an_output_starts_no_turn() -> None:
    items = [{"role": "user", "content": "go"}, *call_items("shell", 1)]
    with nexus.open(ledger=":memory:") as nx:
        ctx = nx.mirror(items, provider="responses", model="gpt-5")
        nx.record(ctx, nexus.AgentResult((nexus.assistant("done"),)))
        (session,) = nx.sessions()
        assert session.turns == 1

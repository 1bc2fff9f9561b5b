"""Facts proposed by a model: what it is sent, and which of its answers are dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nexus.errors import BadReply
from nexus.workspace.memory.model_proposals import propose_by_model
from workspace.memory.rows import of, rows

KEY = f"ghp_{'a1B2c3' * 6}"
MESSAGES = rows(
    "Deploys go to Hetzner on 2026-04-01, see ops/deploy.md.",
    of("assistant", "We use Azure."),
    f"The key is {KEY}. Ana signs off.",
)


def item(text: str, *messages: int, kind: str = "fact", about: str = "work") -> dict[str, Any]:
    return {"text": text, "kind": kind, "about": about, "messages": list(messages)}


def test_model_reads_numbered_user_messages_without_secrets() -> None:
    prompts: list[str] = []
    propose_by_model(MESSAGES, "main", lambda prompt: prompts.append(prompt) or "[]", "m")
    (prompt,) = prompts
    assert "[1] Deploys go to Hetzner" in prompt and "[3] The key is [secret:" in prompt
    assert KEY not in prompt and "Azure" not in prompt


def test_answer_is_dropped_unless_its_messages_state_its_values() -> None:
    answers = [
        item("Deploys go to Hetzner.", 1),
        item("Ana signs off releases.", 3, kind="rule"),
        item("Deploys go to Azure.", 1),
        item("Deploys happen on 2026-05-01.", 1),
        item("Deploys are described in ops/release.md.", 1),
        item("Hetzner is used.", 3),
        item("Kubernetes is used.", 1),
        item("Deploys go to Hetzner.", 2),
        item("Deploys go to Hetzner."),
        item("Deploys go to Hetzner.", 99),
        item(f"The key is {KEY}.", 3),
        item("", 1),
        item("x", 1, kind="guess"),
        "text",
    ]
    found, dropped = propose_by_model(MESSAGES, "main", lambda _: f"Here:\n```json\n{json.dumps(answers)}\n```", "m")
    assert [(one.text, one.kind, one.sources[0].entry, one.by) for one in found] == [
        ("Deploys go to Hetzner.", "fact", "1.0", "m"),
        ("Ana signs off releases.", "rule", "3.0", "m"),
    ]
    assert dropped == {
        "value that its source lacks": 5,
        "no source": 3,
        "secret": 1,
        "empty or too long": 1,
        "not in the form that was asked for": 2,
    }


def test_long_session_takes_several_prompts() -> None:
    prompts: list[str] = []
    messages = rows(*(f"{at} " + "word " * 550 for at in range(30)))
    propose_by_model(messages, "main", lambda prompt: prompts.append(prompt) or "[]", "m")
    assert len(prompts) == 3 and max(map(len, prompts)) < 45_000
    assert all(sum(f"[{at}] {at - 1} " in prompt for prompt in prompts) == 1 for at in range(1, 31))


def test_session_without_typed_text_asks_no_model() -> None:
    assert propose_by_model(rows(of("assistant", "hello")), "main", lambda _: pytest.fail("asked"), "m") == ([], {})


@pytest.mark.parametrize("answer", ["", "I found none.", "{}", "[1, 2", '["a", ]'])
def test_answer_without_json_list_is_an_error(answer: str) -> None:
    with pytest.raises(BadReply, match="no JSON list"):
        propose_by_model(MESSAGES, "main", lambda _: answer, "m")

"""What holds for all four judges: good bodies pass, nothing that JSON cannot carry does, and no verdict goes stale."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from support.bodies import GOOD
from support.strict import Json, is_dict, is_list
from support.validity import CHECKS

PROVIDERS = sorted(CHECKS)
VALUE_NAMES = ["not a number", "infinity", "bytes", "a set", "5,000 digits"]


def _list_of(body: Json) -> str:
    return next((name for name in ("contents", "input") if name in body), "messages")


def _strings(node: Any) -> list[tuple[Any, Any]]:
    """The places (container, key) of all texts of a value that stand for prose."""
    if is_list(node):
        return [place for item in node for place in _strings(item)]
    if not is_dict(node):
        return []
    here = [(node, key) for key in ("text", "content") if isinstance(node.get(key), str)]
    return here + [place for value in node.values() for place in _strings(value)]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_good_body_passes(provider: str) -> None:
    assert CHECKS[provider](GOOD[provider]()) == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_lone_surrogate_in_any_text_is_refused(provider: str) -> None:
    for place in range(len(_strings(GOOD[provider]()))):
        body = GOOD[provider]()
        holder, key = _strings(body)[place]
        holder[key] += "\ud83d"
        assert "cannot be sent as UTF-8" in CHECKS[provider](body)[0]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"bytes", {1, 2}, 10**5000], ids=VALUE_NAMES)
def test_value_without_json_form_is_rejected_anywhere(provider: str, value: object) -> None:
    for path in ((), (_list_of(GOOD[provider]()), 0)):
        body = GOOD[provider]()
        holder: Any = body
        for step in path:
            holder = holder[step]
        holder["extra"] = value
        assert "cannot be sent as JSON" in CHECKS[provider](body)[0]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_body_that_contains_itself_is_refused(provider: str) -> None:
    body = GOOD[provider]()
    body[_list_of(body)][0]["extra"] = body[_list_of(body)]
    assert "cannot be sent as JSON" in CHECKS[provider](body)[0]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("value", [None, 3, "text", [], [[]]], ids=repr)
def test_a_message_that_is_no_object_is_refused(provider: str, value: object) -> None:
    body = GOOD[provider]()
    body[_list_of(body)][0] = value
    assert CHECKS[provider](body)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_body_without_its_list_of_messages_is_refused(provider: str) -> None:
    body = GOOD[provider]()
    listed = _list_of(body)
    del body[listed]
    assert CHECKS[provider](body) == [f"{listed}: must be a list, is NoneType"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_body_changed_in_place_is_judged_anew(provider: str) -> None:
    body = GOOD[provider]()
    assert CHECKS[provider](body) == []
    holder, key = _strings(body[_list_of(body)])[0]
    kept, holder[key] = holder[key], 5
    assert CHECKS[provider](body) != []
    holder[key] = kept
    assert CHECKS[provider](body) == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_good_body_of_another_provider_is_refused(provider: str) -> None:
    assert all(CHECKS[provider](GOOD[other]()) for other in PROVIDERS if other != provider)


def test_no_judge_imports_nexus() -> None:
    no_judges = {
        "agent_model.py", "client_requests.py", "continued.py", "errors.py", "hostile.py", "live_log.py", "long_conversation.py", "mirrored_body.py", "paid_replies.py",
        "replay.py", "scripted_agent.py", "writing_program.py",
    }  # fmt: skip
    sources = sorted(path for path in Path(__file__).parent.glob("*.py") if path.name not in no_judges)
    trees = [ast.parse(source.read_text(encoding="utf-8")) for source in sources]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert len(sources) > 5
    assert not {name for name in imported if name.partition(".")[0] == "nexus"}

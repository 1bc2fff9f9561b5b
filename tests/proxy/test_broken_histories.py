"""Histories that a provider refuses, by kind: after `heal` independent judges take each, and nothing else is changed.

Each kind breaks one of three turns, in each of the four formats. What a judge takes as it is goes on byte for byte, but for
ids of calls that not every provider takes, and blank texts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from interchange.client_lists import SENT, calls, results
from proxy.running import RunningProxy, running_proxy
from proxy.upstream import upstream
from support.mirrored_body import python_form
from support.validity import CHECKS

Json = dict[str, Any]
FORMATS = ("anthropic", "openai", "responses", "gemini")
TURNS = 3
PATHS = {
    "anthropic": "/v1/messages",
    "openai": "/v1/chat/completions",
    "responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-2.5-pro:generateContent",
}
MODELS = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-4o", "responses": "gpt-5"}


@dataclass
class Turn:
    """The items of one turn: a user's request, two calls, their results, and the answer."""

    form: str
    number: int
    asked: list[Json]
    calls: list[Json]
    results: list[Json]
    answer: list[Json]

    def items(self) -> list[Json]:
        return [*self.asked, *self.calls, *self.results, *self.answer]

    def each_call(self) -> Iterator[Json]:
        """Yield the calls themselves, wherever their items are."""
        for item in self.calls:
            match self.form:
                case "anthropic":
                    yield from item["content"]
                case "openai":
                    yield from item["tool_calls"]
                case "responses":
                    yield item
                case _:
                    yield from (part["functionCall"] for part in item["parts"])

    def each_result(self) -> Iterator[Json]:
        """Yield the results themselves, wherever their items are."""
        for item in self.results:
            match self.form:
                case "anthropic":
                    yield from item["content"]
                case "gemini":
                    yield from (part["functionResponse"] for part in item["parts"])
                case _:
                    yield item

    def set_ids(self, call_ids: list[Any], result_ids: list[Any]) -> list[Json]:
        """Give calls and results other ids; None is none."""
        result_key = {"anthropic": "tool_use_id", "openai": "tool_call_id", "responses": "call_id"}.get(self.form, "id")
        call_key = {"responses": "call_id"}.get(self.form, "id")
        for each, key, ids in ((self.each_call(), call_key, call_ids), (self.each_result(), result_key, result_ids)):
            for value, name in zip(each, ids, strict=True):
                value.pop(key, None)
                if name is not None:
                    value[key] = name
        return self.items()

    def set_names(self, name: str) -> list[Json]:
        for call in self.each_call():
            place = call["function"] if self.form == "openai" else call
            place["name"] = name
        if self.form == "gemini":
            for result in self.each_result():
                result["name"] = name
        return self.items()

    def without_names(self, ids: list[Any]) -> list[Json]:
        """Take the names from the calls, and give calls and results these ids."""
        for call in self.each_call():
            place = call["function"] if self.form == "openai" else call
            del place["name"]
        for result in self.each_result():
            result.pop("name", None)
        return self.set_ids(ids, ids)

    def set_arguments(self, text: str, value: Any) -> list[Json]:
        """Give the calls other arguments: as a text where the format has one, else as a value."""
        for call in self.each_call():
            match self.form:
                case "anthropic":
                    call["input"] = value
                case "openai":
                    call["function"]["arguments"] = text
                case "responses":
                    call["arguments"] = text
                case _:
                    call["args"] = value
        return self.items()

    def says(self, role: str, text: Any) -> Json:
        """Return a message of `user`, `model` or `system` with a text."""
        if self.form == "gemini":
            return {"role": role, "parts": [{"text": text}]}
        return {"role": "assistant" if role == "model" else role, "content": text}

    def with_parts(self, parts: list[Json], of: str = "asked") -> list[Json]:
        """Replace the content of the request, or of the answer."""
        getattr(self, of)[0]["parts" if self.form == "gemini" else "content"] = parts
        return self.items()

    def thinks(self) -> list[Json]:
        """Return thinking without what signs it, as an item or message of its own."""
        match self.form:
            case "anthropic":
                return [{"role": "assistant", "content": [{"type": "thinking", "thinking": "Well.", "signature": ""}]}]
            case "responses":
                return [{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Well."}]}]
            case "openai":
                return [{"role": "assistant", "content": None, "reasoning_content": "Well."}]
            case _:
                return [{"role": "model", "parts": [{"text": "", "thought": True}]}]


def turn_of(form: str, number: int) -> Turn:
    ids = [f"call_{number}a", f"call_{number}b"]
    made_calls = _rest_form(calls(form, ids, is_named=True))
    made_results = _rest_form(results(form, [(name, f"result of {name}") for name in ids]))
    turn = Turn(form, number, [], made_calls, made_results, [])
    turn.asked = [turn.says("user", f"request {number}")]
    turn.answer = [turn.says("model", f"answer {number}")]
    return turn


def _rest_form(value: Any) -> Any:
    """Return items of Gemini with the names of its REST interface."""
    names = {"function_call": "functionCall", "function_response": "functionResponse"}
    if isinstance(value, list):
        return [_rest_form(item) for item in value]
    if isinstance(value, dict):
        return {names.get(name, name): _rest_form(item) for name, item in value.items()}
    return value


def _first(items: list[Json], form: str) -> list[Json]:
    """Return items with the first of two calls or results alone."""
    if form in ("openai", "responses") and len(items) > 1:
        return items[:1]
    item = deepcopy(items[0])
    for key in ("content", "tool_calls", "parts"):
        if isinstance(item.get(key), list):
            item[key] = item[key][:1]
    return [item]


def _reversed(items: list[Json]) -> list[Json]:
    if len(items) > 1:
        return items[::-1]
    key = "parts" if "parts" in items[0] else "content"
    return [{**items[0], key: items[0][key][::-1]}]


def _as(role: str, items: list[Json]) -> list[Json]:
    return [{**item, "role": role} if "role" in item else item for item in items]


LONG = "x" * 90
NO_JSON = '{"cut": "of'

KINDS: dict[str, Callable[[Turn], list[Json]]] = {
    "calls without results": lambda t: [*t.asked, *t.calls, *t.answer],
    "one result missing": lambda t: [*t.asked, *t.calls, *_first(t.results, t.form), *t.answer],
    "results without calls": lambda t: [*t.asked, *t.results, *t.answer],
    "one call missing": lambda t: [*t.asked, *_first(t.calls, t.form), *t.results, *t.answer],
    "results twice": lambda t: [*t.asked, *t.calls, *t.results, *deepcopy(t.results), *t.answer],
    "results again later": lambda t: [*t.items(), *deepcopy(t.results)],
    "calls twice": lambda t: [*t.asked, *t.calls, *deepcopy(t.calls), *t.results, *t.answer],
    "results before their calls": lambda t: [*t.asked, *t.results, *t.calls, *t.answer],
    "results in another order": lambda t: [*t.asked, *t.calls, *_reversed(t.results), *t.answer],
    "results in the next turn": lambda t: [*t.asked, *t.calls, *t.answer, t.says("user", "And?"), *t.results],
    "one id for two calls": lambda t: t.set_ids(["same", "same"], ["same", "same"]),
    "ids of another turn": lambda t: t.set_ids(["call_0a", "call_0b"], ["call_0a", "call_0b"]),
    "no ids": lambda t: t.set_ids([None, None], [None, None]),
    "no ids in results": lambda t: t.set_ids(["a", "b"], [None, None]),
    "empty ids": lambda t: t.set_ids(["", ""], ["", ""]),
    "ids of other calls": lambda t: t.set_ids(["a", "b"], ["c", "d"]),
    "long ids": lambda t: t.set_ids([f"{LONG}1", f"{LONG}2"], [f"{LONG}1", f"{LONG}2"]),
    "ids with odd characters": lambda t: t.set_ids(["a b/é", "c:d"], ["a b/é", "c:d"]),
    "user between calls and results": lambda t: [*t.asked, *t.calls, t.says("user", "Wait."), *t.results, *t.answer],
    "system between calls and results": lambda t: [*t.asked, *t.calls, t.says("system", "Rule."), *t.results, *t.answer],
    "system behind an answer": lambda t: [*t.items(), t.says("system", "Rule.")],
    "no name of a tool": lambda t: t.set_names(""),
    "empty names and ids": lambda t: [t.set_names(""), t.set_ids(["", ""], ["", ""])][1],
    "name of a tool with odd characters": lambda t: t.set_names("bad name!"),
    "long name of a tool": lambda t: t.set_names("n" * 200),
    "arguments cut off": lambda t: t.set_arguments(NO_JSON, NO_JSON),
    "arguments that are a list": lambda t: t.set_arguments("[1]", [1]),
    "arguments with NaN": lambda t: t.set_arguments('{"a": NaN}', {"a": float("nan")}),
    "no arguments": lambda t: t.set_arguments("", None),
    "empty request": lambda t: [t.says("user", ""), *t.items()[1:]],
    "blank request": lambda t: [t.says("user", " \n"), *t.items()[1:]],
    "request without parts": lambda t: t.with_parts([]),
    "empty answer": lambda t: [*t.items()[:-1], t.says("model", "")],
    "answer without parts": lambda t: t.with_parts([], "answer"),
    "answer before the request": lambda t: [*t.answer, *t.asked, *t.calls, *t.results],
    "no request": lambda t: t.items()[1:],
    "two requests": lambda t: [*t.asked, *t.items()],
    "two answers": lambda t: [*t.items(), t.says("model", "Further.")],
    "thinking alone": lambda t: [*t.asked, *t.thinks(), t.says("user", "Go on."), *t.items()[1:]],
    "thinking behind the answer": lambda t: [*t.items(), *t.thinks()],
    "calls of the user": lambda t: [*t.asked, *_as("user", t.calls), *t.results, *t.answer],
    "lone surrogate": lambda t: [t.says("user", "a\ud800b"), *t.items()[1:]],
}  # fmt: skip


CHANGED_ANYWAY = {
    ("gemini", "long ids"),
    ("openai", "ids with odd characters"),
    ("responses", "ids with odd characters"),
    ("gemini", "ids with odd characters"),
    ("gemini", "ids of another turn"),
    ("openai", "blank request"),
    ("responses", "blank request"),
    ("gemini", "blank request"),
    ("gemini", "no arguments"),
}
"""Formats and kinds that a judge takes and that are changed all the same: the list has one form for all providers."""

TAKEN = {
    "anthropic": "roles must alternate, assistant follows assistant",  # joined, as its documentation says
    "gemini": "roles must alternate",  # Gemini CLI sends two requests in a row
}
"""Faults by a judge that the provider itself takes."""

NOT_TAKEN = {("gemini", "no ids in results")}
"""Formats and kinds that are left out: Gemini pairs results without ids by order."""


def body_of(form: str, kind: str, broken: int) -> Json:
    """Return a request whose turn of this number is broken."""
    turns = [turn_of(form, number) for number in range(TURNS)]
    items = [item for turn in turns for item in (KINDS[kind](turn) if turn.number == broken else turn.items())]
    items.append(turns[0].says("user", "last request"))
    if form == "openai":
        items.insert(0, {"role": "system", "content": "Be brief."})
    body: Json = {SENT[form]: items}
    if form != "gemini":
        body["model"] = MODELS[form]
    if form == "anthropic":
        body |= {"max_tokens": 100, "system": "Be brief."}
    if form == "responses":
        body |= {"store": False, "instructions": "Be brief."}
    if form == "gemini":
        body["systemInstruction"] = {"parts": [{"text": "Be brief."}]}
    return body


def faults_of(form: str, body: Json) -> list[str]:
    """Return what the judge of a format, which shares nothing with Nexus, finds in a body."""
    if form == "gemini":
        others = {name: value for name, value in body.items() if name != "systemInstruction"}
        body = {"model": "gemini", **python_form(others)}
    return [fault for fault in CHECKS[form](body) if TAKEN.get(form, fault + "!") not in fault]


CASES = [(form, kind) for form in FORMATS for kind in KINDS if (form, kind) not in NOT_TAKEN]


@pytest.fixture(scope="module")
def healer() -> Iterator[tuple[RunningProxy, list[bytes]]]:
    bodies: list[bytes] = []
    with upstream(bodies) as url, running_proxy(url, mode="heal", cache_marks=False) as running:
        yield running, bodies


@pytest.mark.parametrize(("form", "kind"), CASES)
def test_broken_history_is_valid_after_heal(healer: tuple[RunningProxy, list[bytes]], form: str, kind: str) -> None:
    running, bodies = healer
    for broken in range(TURNS):
        body = body_of(form, kind, broken)
        data = json.dumps(body, indent=1).encode()
        bodies.clear()
        headers = {"content-type": "application/json"}
        answer = httpx.post(running.url + PATHS[form], content=data, headers=headers, trust_env=False, timeout=60)
        call = running.call(answer.headers["x-nexus-call"])
        (arrived,) = bodies
        sent = json.loads(arrived)
        faults = faults_of(form, sent)
        assert not faults, (broken, faults, call["reasons"])
        if not faults_of(form, body) and (arrived == data or (form, kind) not in CHANGED_ANYWAY):
            assert arrived == data, (broken, call["reasons"])
            continue
        assert call["outcome"] == "healed" and call["reasons"], call
        _check_rest(form, kind, broken, sent)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("is_last", [False, True], ids=["before another turn", "at the end"])
@pytest.mark.parametrize("ids", [[None, None], ["a", "b"]], ids=["no ids", "ids"])
def test_calls_without_names_get_one_and_keep_their_results(
    healer: tuple[RunningProxy, list[bytes]], form: str, is_last: bool, ids: list[str | None]
) -> None:
    running, bodies = healer
    turns = [turn_of(form, number) for number in range(TURNS)]
    items = [item for turn in turns for item in (turn.without_names(ids) if turn.number == 1 else turn.items())]
    items.append(turns[0].says("user", "last request"))
    if is_last:
        items = [*turns[0].items(), *turns[1].asked, *turns[1].calls, *turns[1].results]
    body = {**body_of(form, "no request", 1), SENT[form]: items}
    assert faults_of(form, body)
    bodies.clear()
    answer = httpx.post(running.url + PATHS[form], json=body, trust_env=False, timeout=60)
    call = running.call(answer.headers["x-nexus-call"])
    (arrived,) = bodies
    assert faults_of(form, json.loads(arrived)) == []
    assert call["outcome"] == "healed"
    assert "call id, name or arguments made valid (2)" in " ".join(call["reasons"])
    assert b"result of call_0a" in arrived and b"result of call_1a" in arrived and b"result of call_1b" in arrived


def _check_rest(form: str, kind: str, broken: int, sent: Json) -> None:
    """Check that nothing around a broken turn is changed or lost."""
    sound = body_of(form, kind, broken)
    key = SENT[form]
    assert {name: value for name, value in sent.items() if name not in (key, "system", "systemInstruction")} == {
        name: value for name, value in sound.items() if name not in (key, "system", "systemInstruction")
    }
    assert "Be brief." in json.dumps(sent)
    listed = sent[key]
    if form == "openai":
        assert listed[0] == {"role": "system", "content": "Be brief."}
        listed = listed[1:]
    before = [_plain(item) for number in range(broken) for item in turn_of(form, number).items()]
    assert [_plain(item) for item in listed][: max(len(before) - 1, 0)] == before[
        :-1
    ]  # the last may be joined with the next
    texts = json.dumps(sent)
    for number in range(TURNS):
        others = [f"request {number}", f"answer {number}", f"result of call_{number}a", f"result of call_{number}b"]
        lost = [text for text in others if text not in texts and text in json.dumps(sound)]
        assert not lost or number == broken, lost


def _plain(item: Json) -> Json:
    """Return an item with a text's one block as the text."""
    content = item.get("content")
    if isinstance(content, list) and len(content) == 1 and "text" in content[0]:
        return {**item, "content": content[0]["text"]}
    return item


def test_kinds_are_three_hundred_broken_histories() -> None:
    counts: Counter[bool] = Counter()
    for form, kind in CASES:
        for broken in range(TURNS):
            counts[bool(faults_of(form, body_of(form, kind, broken)))] += 1
    assert counts[True] >= 300, counts
    assert counts[False] > 0


@pytest.mark.parametrize("ids", [None, ""])
def test_call_of_chat_completions_without_an_id_gets_the_one_of_its_result(
    healer: tuple[RunningProxy, list[bytes]], ids: str | None
) -> None:
    running, bodies = healer
    turn = turn_of("openai", 0)
    turn.calls[0]["tool_calls"] = turn.calls[0]["tool_calls"][:1]
    turn.results = turn.results[:1]
    call = turn.calls[0]["tool_calls"][0]
    if ids is None:
        del call["id"]
    else:
        call["id"] = ids
    body = {"model": "gpt-4o", "messages": [*turn.asked, *turn.calls, *turn.results]}
    assert faults_of("openai", body)
    bodies.clear()
    answer = httpx.post(running.url + PATHS["openai"], json=body, trust_env=False, timeout=60)
    (arrived,) = bodies
    sent = json.loads(arrived)
    assert answer.headers["x-nexus-outcome"] == "healed"
    assert faults_of("openai", sent) == []
    assert sent["messages"][1]["tool_calls"][0]["id"] == sent["messages"][2]["tool_call_id"]

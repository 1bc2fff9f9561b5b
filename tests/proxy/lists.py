"""What must be true of the body that the proxy sends for a client's list."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

import nexus
from interchange.client_lists import MODELS, SCRIPTS, SENT, ClientList, Script, client_list, reply
from nexus.proxy.calls import CallPlace, prepare, read_answer, record
from nexus.proxy.reports import CallReport
from nexus.proxy.requests import ClientRequest
from support.mirrored_body import python_form
from support.validity import CHECKS

Json = dict[str, Any]
BLOCK = 1_000
PATHS = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions", "responses": "/v1/responses"}


def request_of(made: ClientList, model: str) -> ClientRequest:
    """Return a client's request with a list, and fields that only the client knows."""
    path = PATHS.get(made.format, f"/v1beta/models/{model}:generateContent")
    body: Json = {SENT[made.format]: made.items, "new_field": {"a": [1, None]}}
    if made.format != "gemini":
        body["model"] = model
    if made.format == "anthropic":
        body |= {"max_tokens": 100, "system": "Be brief."}
    if made.format == "responses":
        body["store"] = False
    return ClientRequest(made.format, path, json.dumps(body, indent=1).encode())  # type: ignore[arg-type]


def judge(script: Script, nx: nexus.Engine, name: str, counts: Counter[str]) -> None:
    """Prepare a script's list whole and within its budget, and record it. Raises AssertionError."""
    made = client_list(script)
    model = MODELS[script.format][script.model]
    request = request_of(made, model)
    place = CallPlace("client", "", name)
    prepared = None
    for budget in (None, script.budget):
        report = CallReport(id=name, at_ms=0, client="client", path=request.path)
        try:
            prepared = prepare(nx, request, place, budget, report, marks=True)
        except nexus.BudgetTooSmall:
            assert budget is not None
            counts["too small budgets"] += 1
            continue
        counts[report.outcome] += 1
        _check_body(made, request, prepared.data, report, budget)
    answer = json.dumps(reply(script.format, ["next_1"])).encode()
    result = read_answer(request.format, answer, is_stream=False)
    if prepared is not None:
        record(nx, prepared.ctx, result, report)
        assert report.session


def _check_body(made: ClientList, request: ClientRequest, data: bytes, report: CallReport, budget: int | None) -> None:
    sent = json.loads(data)
    key = SENT[made.format]
    known = {name: value for name, value in sent.items() if name != "new_field"}  # the judges know no other
    body = known
    if made.format == "gemini":
        system = known.pop("systemInstruction", {"parts": [{"text": "x"}]})
        assert [list(part) for part in system["parts"]] == [["text"]]
        body = {"model": "gemini", **python_form(known)}
    faults = CHECKS[made.format](body)
    assert not faults, faults
    own = {name: value for name, value in request.body.items() if name not in (key, "system")}
    assert {name: value for name, value in sent.items() if name in own} == own, "a field of the client is changed"
    if report.outcome == "as_received":
        assert data == request.data
    elif report.outcome == "marked":
        assert made.format != "gemini"
        assert _without_breakpoints(sent, key) == _without_breakpoints(request.body, key)
    else:
        assert report.reasons, "changed without a reason"
    if budget is None:
        assert report.outcome != "fitted"
        lost = [text for text in made.results if text not in data.decode()]
        assert not lost, f"lost: {lost}"
        if made.is_plain:
            assert report.outcome in ("as_received", "marked"), report.reasons
    else:
        assert report.tokens <= budget
    assert data.count(b'"cache_control"') <= 4


def _without_breakpoints(body: Json, key: str) -> Any:
    """Return a body without the fields of the cache, with each text as a block."""
    plain = {name: value for name, value in body.items() if name != "prompt_cache_key"}
    plain[key] = [_plain_message(item) for item in body[key]]
    if "system" in body:
        plain["system"] = _plain_message({"content": body["system"]})["content"]
    return plain


def _plain_message(message: Json) -> Json:
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return message
    blocks: list[Json] = []
    for block in content:
        plain = {
            name: value for name, value in block.items() if name not in ("cache_control", "prompt_cache_breakpoint")
        }
        if plain.get("type") == "input_text":
            plain["type"] = "text"
        blocks.append(plain)
    return {**message, "content": blocks}


def searched(
    lists: int, first_seed: int, counts: Counter[str], progress: Callable[[int, int], None] | None = None
) -> None:
    """Judge so many lists, and count what they met. Raises AssertionError at the least that breaks a rule."""
    for number, begun in enumerate(range(0, lists, BLOCK)):
        _block(min(BLOCK, lists - begun), first_seed * 1_000_000 + number, counts)
        if progress is not None:
            progress(min(begun + BLOCK, lists), lists)


def _block(lists: int, block_seed: int, counts: Counter[str]) -> None:
    names = iter(range(1 << 30))

    @seed(block_seed)
    @settings(
        max_examples=lists,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(SCRIPTS)
    def holds(script: Script) -> None:
        judge(script, nx, str(next(names)), counts)

    with nexus.open(ledger=":memory:") as nx:
        holds()

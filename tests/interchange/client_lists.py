"""Lists as clients might send them, in each format, and what must be true of what goes out for them.

A list is a sequence of turns with system messages, tools in the list, images, calls and results of server tools, and calls
whose results have the call's id, another one, or none.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import nexus
from support.strict import Json
from support.validity import CHECKS

PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645"
        "400000000049454e44ae426082"
    )
).decode()

MODELS = {
    "openai": ("gpt-4o", "llama-3.3-70b"),
    "responses": ("gpt-5", "gpt-5.6"),
    "anthropic": ("claude-opus-5-5", "claude-sonnet-4-5"),
    "gemini": ("gemini-2.5-pro", "gemini-3.8-flash"),
}
SENT = {"openai": "messages", "responses": "input", "anthropic": "messages", "gemini": "contents"}
BODIES: dict[str, Callable[[nexus.AssembledContext], Json]] = {
    "openai": lambda ctx: ctx.to_openai(),
    "responses": lambda ctx: ctx.to_responses(),
    "anthropic": lambda ctx: ctx.to_anthropic(),
    "gemini": lambda ctx: ctx.to_gemini(),
}
BLOCK = 1_000
"""Lists that are drawn together, each block with a seed of its own."""


class Step(NamedTuple):
    """One request of the model in a turn: its calls, and how the client answers them."""

    calls: int
    """Number of parallel calls."""
    ids: str
    """`own`, `missing` in calls and results, `foreign` in results, `repeated` in each step."""
    order: bool
    """True if the results come in the order of the calls."""
    system: str
    """Place of a system message: none, `between` calls and results, or `behind` them."""
    server: bool
    """True if the model used a tool of the provider's server, too."""


class Turn(NamedTuple):
    """What a user says, and the steps of the answer."""

    chars: int
    image: bool
    system: str
    """Place of a system message: none, `before` the user's message or `behind` it."""
    steps: tuple[Step, ...]


class Script(NamedTuple):
    """A client's list, and the budget of its last call."""

    format: str
    model: int
    head: int
    """Number of instructions that the list begins with."""
    turns: tuple[Turn, ...]
    ends_with_result: bool
    budget: int
    renames: bool
    """True if the client has other ids for a reply's calls."""


STEPS = st.builds(
    Step,
    st.integers(1, 3),
    st.sampled_from(["own", "own", "own", "missing", "foreign", "repeated"]),
    st.booleans(),
    st.sampled_from(["", "", "", "between", "behind"]),
    st.booleans(),
)
TURNS = st.builds(
    Turn,
    st.sampled_from([5, 40, 400, 2_000]),
    st.booleans(),
    st.sampled_from(["", "", "before", "behind"]),
    st.lists(STEPS, max_size=3).map(tuple),
)
SCRIPTS = st.builds(
    Script,
    st.sampled_from(list(SENT)),
    st.integers(0, 1),
    st.integers(0, 2),
    st.lists(TURNS, min_size=1, max_size=5).map(tuple),
    st.booleans(),
    st.sampled_from([1_500, 2_500, 4_000, 8_000]),
    st.booleans(),
)


@dataclass
class ClientList:
    """The items of a list, and what is in them."""

    format: str
    items: list[Json] = field(default_factory=list[Json])
    results: list[str] = field(default_factory=list[str])
    instructions: list[str] = field(default_factory=list[str])
    opening: list[str] = field(default_factory=list[str])
    is_plain: bool = True
    """True if nothing in it has to change."""
    number: int = 0

    def next(self) -> int:
        """Return a number that is used once."""
        self.number += 1
        return self.number

    def user(self, turn: Turn) -> None:
        """Add a user's message."""
        text = f"request-{self.next()} " + "word " * (turn.chars // 5)
        if turn.system == "before":
            self.system()
        if self.items and _is_users(self.items[-1]) and self.format == "gemini":
            self.is_plain = False  # contents of one role in a row are joined
        match self.format:
            case "openai":
                image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
                content: Any = [{"type": "text", "text": text}, image] if turn.image else text
                self.items.append({"role": "user", "content": content})
            case "responses":
                image = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}
                content = [{"type": "input_text", "text": text}, image] if turn.image else text
                self.items.append({"role": "user", "content": content})
            case "anthropic":
                image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
                content = [{"type": "text", "text": text}, *([image] if turn.image else [])]
                self.items.append({"role": "user", "content": content})
            case _:
                image = {"inline_data": {"mime_type": "image/png", "data": PNG}}
                self.items.append({"role": "user", "parts": [{"text": text}, *([image] if turn.image else [])]})
        if turn.system == "behind":
            self.system()

    def system(self) -> None:
        """Add a system message."""
        text = f"instruction-{self.next()} is in force"
        self.instructions.append(text)
        if not any(map(_is_models, self.items)) and not any(map(_is_users, self.items)):
            self.opening.append(text)
        match self.format:
            case "gemini":
                self.items.append({"role": "system", "parts": [{"text": text}]})
            case "responses":
                self.items.append({"role": "developer", "content": text})
            case "anthropic":
                self.items.append({"role": "system", "content": [{"type": "text", "text": text}]})
            case _:
                self.items.append({"role": "system", "content": text})
        # Those that a list begins with are the system prompt.
        self.is_plain &= self.format in ("openai", "responses") and len(self.items) > 1

    def tools(self) -> None:
        """Add tools in the list, where the format has an item for them."""
        if self.format == "responses":
            name = f"tool_{self.next()}"
            schema: Json = {"type": "object", "properties": {}}
            tool: Json = {"type": "function", "name": name, "parameters": schema, "strict": False}
            self.opening.append(name)
            self.items.append({"type": "additional_tools", "role": "developer", "tools": [tool]})

    def step(self, step: Step, *, is_answered: bool = True) -> None:
        """Add a model's calls, and their results."""
        numbers = [self.next() for _ in range(step.calls)]
        ids = ["call_same" if step.ids == "repeated" and n == numbers[0] else f"call_{n}x" for n in numbers]
        self.items += calls(self.format, ids, is_named=step.ids != "missing", server=step.server)
        self.is_plain &= step.ids == "own"
        if not is_answered:
            return
        if step.system == "between":
            self.system()
            self.is_plain = False
        texts = [f"result-{n} found" for n in numbers]
        self.results += texts
        result_ids = {"missing": [""] * len(ids), "foreign": [f"other_{n}" for n in numbers]}.get(step.ids, ids)
        answers = [*zip(result_ids, texts, strict=True)]
        if not step.order and step.ids in ("own", "repeated"):
            answers.reverse()
            self.is_plain &= self.format != "gemini"  # its responses are in the order of the calls
        self.items += results(self.format, answers)
        if step.system == "behind":
            self.system()

    def text(self) -> None:
        """Add a model's text."""
        text = f"answer-{self.next()}"
        match self.format:
            case "gemini":
                self.items.append({"role": "model", "parts": [{"text": text}]})
            case "anthropic":
                self.items.append({"role": "assistant", "content": [{"type": "text", "text": text}]})
            case _:
                self.items.append({"role": "assistant", "content": text})


def calls(form: str, ids: Sequence[str], *, is_named: bool, server: bool = False) -> list[Json]:
    """Return the items of calls, without ids unless they are named."""
    made: list[Json]
    match form:
        case "openai":
            function = {"name": "look", "arguments": "{}"}
            made = [{**({"id": i} if is_named else {}), "type": "function", "function": function} for i in ids]
            return [{"role": "assistant", "content": None, "tool_calls": made}]
        case "responses":
            search = {"type": "web_search_call", "id": f"ws_{ids[0]}", "status": "completed"}
            action = {"action": {"type": "search", "query": "x"}}
            made = [
                {"type": "function_call", **({"call_id": i} if is_named else {}), "name": "look", "arguments": "{}"}
                for i in ids
            ]
            return [*([{**search, **action}] if server else []), *made]
        case "anthropic":
            searched: list[Json] = [
                {"type": "server_tool_use", "id": f"srvtoolu_{ids[0]}", "name": "web_search", "input": {"query": "x"}},
                {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{ids[0]}", "content": []},
            ]
            made = [{"type": "tool_use", **({"id": i} if is_named else {}), "name": "look", "input": {}} for i in ids]
            return [{"role": "assistant", "content": [*(searched if server else []), *made]}]
        case _:
            made = [{"function_call": {**({"id": i} if is_named else {}), "name": "look", "args": {}}} for i in ids]
            return [{"role": "model", "parts": made}]


def results(form: str, answers: Sequence[tuple[str, str]]) -> list[Json]:
    """Return the items of results; one without an id has none."""
    match form:
        case "openai":
            return [
                {"role": "tool", **({"tool_call_id": call} if call else {}), "content": text} for call, text in answers
            ]
        case "responses":
            kind = "function_call_output"
            return [{"type": kind, **({"call_id": call} if call else {}), "output": text} for call, text in answers]
        case "anthropic":
            blocks = [
                {"type": "tool_result", **({"tool_use_id": call} if call else {}), "content": text}
                for call, text in answers
            ]
            return [{"role": "user", "content": blocks}]
        case _:
            parts = [
                {"function_response": {**({"id": call} if call else {}), "name": "look", "response": {"output": text}}}
                for call, text in answers
            ]
            return [{"role": "user", "parts": parts}]


def reply(form: str, ids: Sequence[str]) -> Any:
    """Return a provider's reply with calls, or with a text if there are no ids."""
    match form:
        case "openai":
            message = calls(form, ids, is_named=True)[0] if ids else {"role": "assistant", "content": "fine"}
            return {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if ids else "stop"}]}
        case "responses":
            output = calls(form, ids, is_named=True)
            return {"object": "response", "status": "completed", "output": output, "usage": None}
        case "anthropic":
            content = calls(form, ids, is_named=True)[0]["content"]
            return {"type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use", "usage": {}}
        case _:
            return {"candidates": [{"content": calls(form, ids, is_named=False)[0], "finishReason": "STOP"}]}


def client_list(script: Script) -> ClientList:
    """Return a script's list, which ends with a user's message, results or a system message."""
    made = ClientList(script.format)
    if script.head:
        made.tools()
    for _ in range(script.head):
        made.system()
    for index, turn in enumerate(script.turns):
        made.user(turn)
        is_last = index + 1 == len(script.turns)
        for step in turn.steps:
            made.step(step)
        if not is_last or not (turn.steps and script.ends_with_result):
            made.text()
        if is_last and not (turn.steps and script.ends_with_result):
            made.user(turn._replace(system="behind" if turn.system else ""))
    if MODELS[script.format][script.model].startswith("gemini-3") and any(turn.steps for turn in script.turns):
        made.is_plain = False  # calls without a signature get the placeholder
    return made


def judge(script: Script, nx: nexus.Engine, name: str, counts: Counter[str]) -> None:
    """Send a script's list, the reply's calls with their results, and the list within a budget. Raises AssertionError."""
    made = client_list(script)
    options: dict[str, Any] = {"provider": script.format, "model": MODELS[script.format][script.model]}
    ctx = nx.mirror(made.items, conversation=name, **options)
    body = BODIES[script.format](ctx)
    _check_whole(made, body)
    counts["unchanged lists"] += made.is_plain
    ids = [f"reply_{n}" for n in range(1, 3)]
    nx.record(ctx, reply(script.format, ids))
    own_ids = [f"own_{n}" for n in range(1, 3)] if script.renames else ids
    is_named = script.renames or script.format != "gemini"
    made.items += calls(script.format, own_ids, is_named=is_named)
    made.items += results(script.format, [(call, f"late-{call}") for call in (own_ids if is_named else ("", ""))])
    made.results += [f"late-{call}" for call in (own_ids if is_named else ("", ""))]
    made.is_plain = False
    ctx = nx.mirror(made.items, conversation=name, **options)
    assert ctx.mirrored is not None and ctx.mirrored.action == "append", ctx.mirrored
    body = BODIES[script.format](ctx)
    _check_whole(made, body)
    if is_named:
        assert all(json.dumps(call) in json.dumps(body) for call in own_ids), "ids are not the client's"
    counts["results"] += len(made.results)
    _check_budget(script, made, nx, name, options, counts)


def _check_whole(made: ClientList, body: Json) -> None:
    problems = CHECKS[made.format](body)
    assert not problems, problems
    sent = json.dumps(body)
    lost = [text for text in (*made.results, *made.instructions, *made.opening) if text not in sent]
    assert not lost, f"lost: {lost}"
    assert "no result recorded" not in sent
    if made.is_plain:
        assert body[SENT[made.format]] == _with_own_form(made, body), "changed"


def _with_own_form(made: ClientList, body: Json) -> list[Json]:
    """Return a list with what a context adds to it: breakpoints, and the system's field."""
    if made.format != "anthropic":
        return made.items
    for message in body["messages"]:
        for block in message["content"]:
            block.pop("cache_control", None)
    return made.items


def _check_budget(
    script: Script, made: ClientList, nx: nexus.Engine, name: str, options: dict[str, Any], counts: Counter[str]
) -> None:
    try:
        ctx = nx.mirror(made.items, conversation=name, budget=script.budget, **options)
    except nexus.BudgetTooSmall as error:
        counts["too small budgets"] += 1
        assert "list" in str(error) or not made.opening or script.format != "responses", str(error)
        return
    counts["cut lists"] += ctx.cut is not None
    assert ctx.token_budget.used.total <= script.budget
    body = BODIES[script.format](ctx)
    problems = CHECKS[made.format](body)
    assert not problems, problems
    sent = json.dumps(body)
    lost = [text for text in (*made.opening, *made.results[-2:]) if text not in sent]
    assert not lost, f"lost in a cut: {lost}"


def _is_users(item: Json) -> bool:
    return item.get("role") == "user"


def _is_models(item: Json) -> bool:
    return item.get("role") in ("assistant", "model") or "call" in str(item.get("type"))


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
        counts["lists"] += 1
        judge(script, nx, str(next(names)), counts)

    with nexus.open(ledger=":memory:") as nx:
        holds()


def plain_lists(form: str) -> Iterator[ClientList]:
    """Yield lists of one format in which nothing has to change."""
    steps = (Step(2, "own", True, "", False),)
    for turns in (1, 3):
        script = Script(form, 0, 0, (Turn(40, False, "", steps),) * turns, True, 0, False)
        yield client_list(script)

"""Proxies on real coding sessions: each call is a client's whole list, sent in turn, and answered as it was then.

What arrives upstream is judged: tokens over the limit, validity, changes without need, the user's turns, and cost by a
simulated prompt cache. Beside Nexus' proxy are the client without one, a bare one, and those of others. Each is a process
of its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cache
from statistics import median, quantiles
from typing import Any

from msgspec import Struct

import nexus
from benchmarks.proxies import (
    HEADROOM,
    LIGHTFOOT,
    Proxy,
    bare_proxy,
    headroom,
    lightfoot,
    megabytes,
    nexus_proxy,
    no_proxy,
)
from benchmarks.proxy_transport import transport
from benchmarks.report import NotRun, Outcome, Table, Target
from benchmarks.sessions import ROOT, Call, long_sessions
from nexus.assembly.fit.excerpts import is_user_turn
from nexus.testing.model_server import ModelRequest, Response, Step, model_server, respond
from nexus.types.message import Message, Text

MAX_CALLS = 60
"""Calls of a session that are replayed."""

SYSTEM = "You are a coding agent. " * 40
HEAD_CHARS = 60
WHOLE_TOKENS = 400
MODELS = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-4o"}
PATHS = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("Bash", "Read", "Edit", "Write")]
LOOKBACK = 20
READ, WRITE = 0.1, 1.25
Fields = dict[str, Any]


class ClientCall(Struct, frozen=True):
    """One request of a client, and the reply that the next one has."""

    body: Fields
    reply: Fields


class Figures(Struct):
    """What arrived upstream."""

    calls: int = 0
    tokens: int = 0
    over: int = 0
    invalid: int = 0
    as_received: int = 0
    needless: int = 0
    """Changed although they were within the limit and valid."""
    cost: float = 0.0
    cached: float = 0.0
    turns: int = 0
    heads: int = 0
    """User turns of which the first 60 characters are in the session's last request."""
    short_turns: int = 0
    whole: int = 0
    """Those of at most 400 tokens that are there whole."""
    first_bytes_ms: list[float] = []
    megabytes: int | None = None
    """Of the proxy's process at the end; None for none."""


def client_calls(calls: Sequence[Call], wire: str) -> list[ClientCall]:
    """Return a session's calls as a client with its whole list sends them, with breakpoints as Claude Code sets them."""
    messages: list[Message] = []
    bodies: list[Fields] = []
    lengths: list[int] = []
    with nexus.open(ledger=":memory:") as nx:
        for call in calls[:MAX_CALLS]:
            event = call.event.results or (Message("user", call.event.content),)
            messages += event
            ctx = nx.mirror(messages, model=MODELS[wire], budget=1 << 40, window=False)
            listed = _unmarked(ctx.to_provider(wire)["messages"])
            bodies.append(_body(listed, wire))
            lengths.append(len(listed))
            messages += call.reply
        ctx = nx.mirror([*messages, nexus.user("end")], model=MODELS[wire], budget=1 << 40, window=False)
        lists = [*(body["messages"] for body in bodies[1:]), _unmarked(ctx.to_provider(wire)["messages"])]
    replies = [_reply(after[length:], wire) for length, after in zip(lengths, lists, strict=True)]
    return [ClientCall(_marked(body, wire), reply) for body, reply in zip(bodies, replies, strict=True)]


def _body(listed: list[Fields], wire: str) -> Fields:
    if wire == "anthropic":
        system = [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}]
        return {"model": MODELS[wire], "max_tokens": 1_000, "system": system, "tools": TOOLS, "messages": listed}
    functions = [
        {"type": "function", "function": {"name": tool["name"], "parameters": tool["input_schema"]}} for tool in TOOLS
    ]
    system_message = {"role": "system", "content": SYSTEM}
    return {"model": MODELS[wire], "tools": functions, "messages": [system_message, *listed]}


def _marked(body: Fields, wire: str) -> Fields:
    if wire != "anthropic":
        return body
    last = body["messages"][-1]
    content = last["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
    blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral"}}
    return {**body, "messages": [*body["messages"][:-1], {**last, "content": blocks}]}


def _reply(items: Sequence[Fields], wire: str) -> Fields:
    """Return the reply that a list goes on with, as a provider's answer."""
    said: list[Fields] = []
    for item in items:
        if item["role"] != "assistant":
            break
        said.append(item)
    usage: Fields = {"input_tokens": 0, "output_tokens": 0}
    if wire == "anthropic":
        content: list[Fields] = []
        for item in said:
            blocks = item["content"]
            content += [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
        stop = "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODELS[wire]}
        return {**head, "content": content, "stop_reason": stop, "usage": usage}
    message = said[0] if said else {"role": "assistant", "content": "."}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if message.get("tool_calls") else "stop"}
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    return {"id": "c", "object": "chat.completion", "model": MODELS[wire], "choices": [choice], "usage": usage}


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if isinstance(value, dict):
        return {
            name: item if name == "input" else _unmarked(item)
            for name, item in value.items()
            if name != "cache_control"
        }
    return value


def user_turns(calls: Sequence[Call]) -> list[str]:
    """Return what the user said in the calls, without what programs put into his messages."""
    parts = [part for call in calls[:MAX_CALLS] for part in call.event.content]
    return [part.text.strip() for part in parts if isinstance(part, Text) and _is_said(part)]


def _is_said(part: Text) -> bool:
    return bool(part.text.strip()) and is_user_turn(Message("user", (part,)))


class Cache:
    """A prompt cache: what a request reads and writes, in tokens, by its blocks."""

    def __init__(self, wire: str) -> None:
        self._wire = wire
        self._known = set[int]()

    def send(self, body: Fields, count: Any) -> tuple[int, int, float]:
        """Return the tokens of a request, those that it reads, and its cost in full input tokens."""
        chain = 0
        total = 0
        read = 0
        prefixes: list[tuple[int, int]] = []
        marks: list[int] = []
        for text, is_marked in _segments(body):
            chain = hash((chain, text))
            total += count(text)
            prefixes.append((chain, total))
            if is_marked:
                marks.append(len(prefixes) - 1)
        if self._wire == "openai":
            for known, tokens in prefixes:
                if known in self._known:
                    read = tokens
            self._known.update(known for known, _ in prefixes)
            return total, read, READ * read + (total - read)
        for mark in marks:
            for at in range(mark, max(mark - LOOKBACK, -1), -1):
                if prefixes[at][0] in self._known:
                    read = max(read, prefixes[at][1])
        written = max((prefixes[mark][1] for mark in marks), default=0)
        self._known.update(prefixes[mark][0] for mark in marks)
        new = max(written - read, 0)
        return total, read, READ * read + WRITE * new + (total - read - new)


def _segments(body: Fields) -> Iterator[tuple[str, bool]]:
    """Yield the blocks of a prompt as they are billed, in their order, and whether they have a breakpoint."""
    from support.recount import wire_text

    parts: list[Any] = [*body.get("tools", ()), *_blocks(body.get("system"))]
    for message in body["messages"]:
        if message.get("tool_calls") or message["role"] == "tool":
            parts.append(message)
        else:
            parts += [{"role": message["role"], **block} for block in _blocks(message["content"])]
    for part in parts:
        yield wire_text(part), "cache_control" in part


def _blocks(content: Any) -> list[Fields]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [*(content or ())]


def replay(
    wire: str, budget: int, sessions: Sequence[tuple[str, tuple[Call, ...]]], check: Any, proxy: Proxy
) -> Figures:
    """Send all calls of the sessions through a proxy, and judge what arrives."""
    import httpx

    figures = Figures()
    judge = Judge(figures, wire, budget, check)
    with (
        model_server() as provider,
        proxy(provider.anthropic_url) as (url, process),
        httpx.Client(trust_env=False, timeout=300) as client,
    ):
        for name, calls in sessions:
            judge.begin()
            for call in client_calls(calls, wire):
                data = json.dumps(call.body).encode()
                provider.script(judge.step(call))
                headers = {"x-claude-code-session-id": name, "content-type": "application/json"}
                before = len(provider.requests)
                status = _post(client, url + PATHS[wire], data, headers, figures.first_bytes_ms)
                if status != 200 or len(provider.requests) == before:
                    print(f"{name}: refused with status {status}", file=sys.stderr)
                    continue
                request = provider.requests.pop()
                judge.add(call, data, request.data, request.body)
            judge.end(calls)
        figures.megabytes = megabytes(process)
    return figures


def _post(client: Any, url: str, data: bytes, headers: dict[str, str], first_bytes_ms: list[float]) -> int:
    """Return the status of an answer, and add the time to its first byte."""
    begun = time.perf_counter()
    with client.stream("POST", url, content=data, headers=headers) as answer:
        pieces = answer.iter_raw()
        next(pieces, b"")
        first_bytes_ms.append(1_000 * (time.perf_counter() - begun))
        for _ in pieces:
            pass
    return answer.status_code


class Judge:
    """Adds what arrives to the figures."""

    def __init__(self, figures: Figures, wire: str, budget: int, check: Any) -> None:
        self._figures = figures
        self._wire = wire
        self._budget = budget
        self._check = check
        self._count = cache(_independent_count())
        self._recount = _recounter().count
        self.begin()

    def begin(self) -> None:
        """Begin a session."""
        self._cache = Cache(self._wire)
        self._last: Fields = {}

    def step(self, call: ClientCall) -> Step:
        """Return the answer of the upstream server: the call's reply, with the usage of what arrives."""

        def answer(request: ModelRequest) -> Response:
            figures = self._figures
            tokens, read, cost = self._cache.send(request.body, self._count)
            figures.tokens += tokens
            figures.cached += read
            figures.cost += cost
            whole = self._recount(request.body)
            usage = {**call.reply["usage"], "prompt_tokens": whole, "prompt_tokens_details": {"cached_tokens": read}}
            if self._wire == "anthropic":
                usage = {**call.reply["usage"], "input_tokens": whole - read, "cache_read_input_tokens": read}
            return respond(200, {**call.reply, "usage": usage})(request)

        return answer

    def add(self, call: ClientCall, data: bytes, sent: bytes, body: Fields) -> None:
        """Judge a request as it arrived."""
        figures = self._figures
        self._last = body
        figures.calls += 1
        budget = self._budget
        figures.over += bool(budget) and self._recount(body) > budget
        figures.invalid += bool(self._check(body))
        figures.as_received += sent == data
        if sent != data and budget and 1.5 * self._recount(call.body) <= budget:
            figures.needless += not self._check(call.body)

    def end(self, calls: Sequence[Call]) -> None:
        """Look for the session's user turns in its last request."""
        figures = self._figures
        texts = "\n".join(_texts(self._last.get("messages", ())))
        for turn in user_turns(calls):
            figures.turns += 1
            figures.heads += turn[:HEAD_CHARS] in texts
            if self._count(turn) <= WHOLE_TOKENS:
                figures.short_turns += 1
                figures.whole += turn in texts


def _independent_count() -> Any:
    """Return a count of texts that shares nothing with Nexus'."""
    from support.recount import count_text

    return count_text


def _recounter() -> Any:
    """Return a count of bodies that shares nothing with Nexus'."""
    from support.validity import Recounter

    return Recounter()


def _texts(messages: Sequence[Fields]) -> Iterator[str]:
    for message in messages:
        for block in _blocks(message.get("content")):
            if isinstance(block.get("text"), str):
                yield block["text"]


OWN = "nexus proxy"


def ways(wire: str) -> Iterator[tuple[str, int, Proxy]]:
    """Yield the proxies by name, with the limit that they are to keep; 0 is none. Those that cannot be run say so."""
    yield "no proxy", 0, no_proxy
    yield "bare proxy", 0, bare_proxy
    yield OWN, 0, nexus_proxy()
    yield OWN, 16_000, nexus_proxy("--budget", "16000")
    yield OWN, 32_000, nexus_proxy("--budget", "32000")
    try:
        name = LIGHTFOOT.replace("==", " ")
        if wire == "anthropic":
            yield name, 0, lightfoot()
        yield f"{name}, prune at 16k keep 8k", 16_000, lightfoot(16_000, 8_000)
    except NotRun as reason:
        print(f"(Lightfoot is not measured: {reason})\n", flush=True)
    try:
        yield HEADROOM.replace("[proxy]==", " "), 0, headroom()
    except NotRun as reason:
        print(f"({reason})\n", flush=True)


def run() -> Outcome:
    """Replay all sessions on both wires."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.validity import CHECKS

    sessions = [(session.name, session.calls) for session in long_sessions()]
    rows: list[tuple[Any, ...]] = []
    targets: list[Target] = []
    for wire in ("anthropic", "openai"):
        base = Figures()
        for name, budget, proxy in ways(wire):
            try:
                figures = replay(wire, budget, sessions, CHECKS[wire], proxy)
            except NotRun as reason:
                print(f"({name} is not measured: {reason})\n", flush=True)
                continue
            if name == "no proxy":
                base = figures
            rows.append(_row(wire, name, budget, figures, base))
            if name == OWN and budget:
                targets += _targets(wire, budget, figures, base)
    columns = (
        "format", "proxy", "limit", "calls", "tokens", "over", "invalid", "as received", "changed without need", "cached",
        "cost", "user turns", "short turns whole", "first byte, p50 / p99 ms", "MB",
    )  # fmt: skip
    table = Table(
        "Proxy: a client's whole lists of real coding sessions",
        "python -m benchmarks proxy",
        "claude_code_long, at most 60 calls a session, in sequence; a scripted model on loopback answers each at once",
        columns,
        tuple(rows),
        (
            "over: bodies above the limit, by a count that shares nothing with Nexus. user turns: of which the first 60",
            " characters are in a session's last request. Short ones have at most 400 tokens.",
            "Usage in the answers counts the request that arrives: its JSON without the data of images, in tokens of o200k.",
            "Lightfoot runs in its mode live. It prunes conversations of Anthropic's format alone by default.",
            "MB: resident memory of the proxy's process at the end.",
        ),
    )
    timed, timed_targets = transport()
    return Outcome((table, timed), (*targets, *timed_targets))


def _targets(wire: str, budget: int, figures: Figures, bare: Figures) -> list[Target]:
    where = f"{wire} at {budget:,}"
    most = {16_000: 0.40, 32_000: 0.60}[budget]
    cost = figures.cost / bare.cost
    faults = figures.over + figures.invalid + figures.needless
    return [
        Target(f"over, invalid or changed without need, {where}", "0", str(faults), not faults),
        Target(
            f"user turns by their first 60 characters, {where}",
            "all",
            f"{figures.heads} of {figures.turns}",
            figures.heads == figures.turns,
        ),
        Target(f"cost of the client's, {where}", f"≤ {most:.2f}", f"{cost:.2f}", round(cost, 2) <= most),
    ]


def _row(wire: str, name: str, budget: int, figures: Figures, bare: Figures) -> tuple[Any, ...]:
    return (
        wire,
        name,
        budget or "none",
        figures.calls,
        f"{figures.tokens / bare.tokens:.2f}",
        figures.over,
        figures.invalid,
        figures.as_received,
        figures.needless,
        f"{figures.cached / max(figures.tokens, 1):.2f}",
        f"{figures.cost / bare.cost:.2f}",
        f"{figures.heads} of {figures.turns}",
        f"{figures.whole} of {figures.short_turns}",
        f"{median(figures.first_bytes_ms):.0f} / {quantiles(figures.first_bytes_ms, n=100)[98]:.0f}",
        figures.megabytes,
    )

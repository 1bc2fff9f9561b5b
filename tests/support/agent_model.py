"""A scripted model for agents: it calls a tool, reads the results, answers, and judges every request that it gets."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from threading import Lock
from typing import Any

import nexus
from nexus.testing.model_server import ModelRequest, Response, reply
from support.mirrored_body import python_form
from support.validity import CHECKS, Recounter

BUDGET = 4_000
"""Tokens of a request; the conversations are several times longer."""

COUNTED = ("system", "systemInstruction", "tools", "messages", "contents")
"""Fields of a request that have tokens."""

WORDS = ["index", "tenant", "latency", "cache", "shard", "migrate", "replica", "vacuum", "query", "planner"]


def words(count: int, seed: str) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(count))


class AgentModel:
    """Answers a user with a call of a tool, and its results with an answer, now and then with another call.

    The answer depends on the messages alone: the same request gets the same reply.

    Attributes:
        bodies: All requests.
        tokens: Their tokens by an independent count, without settings.
        problems: The problems that the judges found in them.
    """

    def __init__(self, byte_interval_s: float = 0.0) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.tokens: list[int] = []
        self.problems: list[str] = []
        self._count, self._byte_interval_s = Recounter().count, byte_interval_s
        self._lock = Lock()  # the judges remember what they have judged

    def __call__(self, request: ModelRequest) -> Response:
        """Judge a request and answer it."""
        body = {name: value for name, value in request.body.items() if name not in ("stream", "stream_options")}
        counted = {name: body[name] for name in COUNTED if name in body}
        messages = _messages(body)
        with self._lock:
            tokens = self._count(counted)
            self.bodies.append(body)
            self.tokens.append(tokens)
            self.problems += CHECKS[request.format](_judged(body))
        seed = hashlib.sha256(json.dumps(messages).encode()).hexdigest()
        last = json.dumps(messages[-1])
        has_results = messages[-1]["role"] == "tool" or '"tool_result"' in last or '"functionResponse"' in last
        calls: list[nexus.ToolCall] = []
        if body.get("tools") and not (has_results and int(seed[:4], 16) % 3):
            for number in range(1 + int(seed[4:8], 16) % 2):
                arguments = json.dumps({"query": words(4, f"{seed}{number}")})
                calls.append(nexus.ToolCall(f"call_{seed[:12]}_{number}", self.tool_name(body), arguments))
        text, interval = words(12 if calls else 60, seed), self._byte_interval_s
        return reply(text, *calls, input_tokens=tokens, byte_interval_s=interval)(request)

    def tool_name(self, body: dict[str, Any]) -> str:
        """Return the name of the tool to call: the first one."""
        tool = body["tools"][0]
        if "functionDeclarations" in tool:
            return tool["functionDeclarations"][0]["name"]
        return tool["function"]["name"] if "function" in tool else tool["name"]

    @property
    def extended(self) -> int:
        """Number of requests that continue the one before them."""
        lists = [[without_breakpoints(_in_blocks(message)) for message in _messages(body)] for body in self.bodies]
        return sum(later[: len(earlier)] == earlier for earlier, later in pairwise(lists))

    def check_requests(self) -> None:
        """Check that every request was valid and within the budget, and that most continue the one before them."""
        over = [tokens for tokens in self.tokens if tokens > BUDGET]
        assert not self.problems, self.problems[:3]
        assert not over, over
        assert len(self.bodies) > 40
        assert self.extended > len(self.bodies) / 2, self.extended


def _judged(body: dict[str, Any]) -> dict[str, Any]:
    """Return what the judges take: of a request of Gemini's REST interface its contents, as the Python client has them."""
    if "contents" not in body:
        return body
    return {"model": "gemini", "contents": python_form(body["contents"])}


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body["contents"] if "contents" in body else body["messages"]


def _in_blocks(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its text as a block, the form that has room for a breakpoint."""
    if isinstance(message.get("content"), str):
        return {**message, "content": [{"type": "text", "text": message["content"]}]}
    return message


def without_breakpoints(value: Any) -> Any:
    if isinstance(value, list):
        return [without_breakpoints(item) for item in value]
    if isinstance(value, dict):
        return {name: without_breakpoints(item) for name, item in value.items() if name != "cache_control"}
    return value


def said(messages: Iterable[nexus.Message]) -> list[Any]:
    """Return the content of messages without what the frameworks change: ids, white space, the form of arguments."""
    return [(message.role, *_parts(message)) for message in messages if message.role != "system"]


def _parts(message: nexus.Message) -> Iterator[Any]:
    for part in message.parts:
        match part:
            case nexus.Text(text) if text.strip():
                yield text.strip()
            case nexus.ToolCall(_, name, arguments):
                yield name, json.loads(arguments or "{}")
            case nexus.ToolResult(_, content):
                yield [block.text for block in content if isinstance(block, nexus.Text)]
                yield from (("image", block.url or block.data) for block in content if isinstance(block, nexus.Image))
            case nexus.Image():
                yield "image", part.url or part.data
            case _:
                pass


def check_ledger(nx: nexus.Engine, messages: Iterable[nexus.Message]) -> int:
    """Check that the ledger has one session with every message of the client once and in order; return their number."""
    (session,) = nx.sessions()
    stored, own = said(nx.history(session.label)), said(messages)
    assert stored == own, Counter(map(str, own)) - Counter(map(str, stored))
    return len(stored)


def run_figures(name: str, model: AgentModel, nx: nexus.Engine, messages: Iterable[nexus.Message]) -> dict[str, int]:
    """Check a run of an agent, and return its figures."""
    model.check_requests()
    stored = check_ledger(nx, messages)
    counts = {"calls": len(model.bodies), "extended": model.extended, "largest request": max(model.tokens)}
    return {f"{name}: {what}": count for what, count in {**counts, "messages stored once": stored}.items()}

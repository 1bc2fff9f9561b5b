"""Clients that send their whole conversation with every call, in each of the four formats."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import nexus

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Format:
    """A provider's format, as a client without Nexus writes it."""

    model: str
    user: Callable[[str], list[Any]]
    reply: Callable[[str, Sequence[Call], str], Any]
    echo: Callable[[Any], list[Any]]
    """The items that a reply becomes in the client's list."""
    results: Callable[[Sequence[str], Sequence[str]], list[Any]]
    body: Callable[[nexus.AssembledContext], Any]
    sent: str
    """Key of the messages in the body."""


def _openai_reply(text: str, calls: Sequence[Call], stem: str) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {"id": f"{stem}_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(calls)
        ]
    reason = "tool_calls" if calls else "stop"
    return {"choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": {}}


def _responses_reply(text: str, calls: Sequence[Call], stem: str) -> Any:
    output: list[Any] = []
    if text:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        output.append(
            {"type": "message", "id": f"msg_{stem}", "role": "assistant", "status": "completed", "content": content}
        )
    output += [
        {
            "type": "function_call",
            "id": f"fc_{stem}_{n}",
            "call_id": f"{stem}_{n}",
            "name": name,
            "arguments": json.dumps(a),
        }
        for n, (name, a) in enumerate(calls)
    ]
    return {"object": "response", "status": "completed", "output": output, "usage": None}


def _anthropic_reply(text: str, calls: Sequence[Call], stem: str) -> Any:
    content: list[Any] = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool_use", "id": f"{stem}_{n}", "name": name, "input": arguments}
        for n, (name, arguments) in enumerate(calls)
    ]
    reason = "tool_use" if calls else "end_turn"
    return {"type": "message", "role": "assistant", "content": content, "stop_reason": reason, "usage": {}}


def _gemini_reply(text: str, calls: Sequence[Call], stem: str) -> Any:
    parts: list[Any] = [{"text": text}] if text else []
    parts += [
        {"function_call": {"id": f"{stem}_{n}", "name": name, "args": arguments}}
        for n, (name, arguments) in enumerate(calls)
    ]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


FORMATS: dict[str, Format] = {
    "openai": Format(
        "gpt-4o",
        lambda text: [{"role": "user", "content": text}],
        _openai_reply,
        lambda reply: [reply["choices"][0]["message"]],
        lambda ids, texts: [
            {"role": "tool", "tool_call_id": call, "content": text} for call, text in zip(ids, texts, strict=True)
        ],
        lambda ctx: ctx.to_openai(),
        "messages",
    ),
    "responses": Format(
        "gpt-5",
        lambda text: [{"role": "user", "content": [{"type": "input_text", "text": text}]}],
        _responses_reply,
        lambda reply: reply["output"],
        lambda ids, texts: [
            {"type": "function_call_output", "call_id": call, "output": text}
            for call, text in zip(ids, texts, strict=True)
        ],
        lambda ctx: ctx.to_responses(),
        "input",
    ),
    "anthropic": Format(
        "claude-sonnet-5-5",
        lambda text: [{"role": "user", "content": text}],
        _anthropic_reply,
        lambda reply: [{"role": "assistant", "content": reply["content"]}],
        lambda ids, texts: [
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": call, "content": text}
                    for call, text in zip(ids, texts, strict=True)
                ],
            }
        ],
        lambda ctx: ctx.to_anthropic(),
        "messages",
    ),
    "gemini": Format(
        "gemini-2.5-pro",
        lambda text: [{"role": "user", "parts": [{"text": text}]}],
        _gemini_reply,
        lambda reply: [reply["candidates"][0]["content"]],
        lambda ids, texts: [
            {
                "role": "user",
                "parts": [
                    {"function_response": {"id": call, "name": "look", "response": {"output": text}}}
                    for call, text in zip(ids, texts, strict=True)
                ],
            }
        ],
        lambda ctx: ctx.to_gemini(),
        "contents",
    ),
}


@dataclass
class Client:
    """A program with its own list, which it sends with every call."""

    nx: nexus.Engine
    format: str = "openai"
    scope: str = "client"
    conversation: str = ""
    principal: str = ""
    window: bool | None = None
    budget: int | None = 6_000
    items: list[Any] = field(default_factory=list[Any])
    waiting: tuple[str, ...] = ()
    """Ids of calls whose results the client has to add."""

    @property
    def wire(self) -> Format:
        return FORMATS[self.format]

    def say(self, text: str) -> None:
        """Add what comes next: results if calls wait for them, else the user's text."""
        if self.waiting:
            self.items += self.wire.results(self.waiting, [f"{text} {n}" for n in range(len(self.waiting))])
            self.waiting = ()
        else:
            self.items += self.wire.user(text)

    def context(self) -> nexus.AssembledContext:
        """The context for the list, of which nothing is shared with the one before."""
        return self.nx.mirror(
            copy.deepcopy(self.items),
            scope=self.scope,
            conversation=self.conversation,
            window=self.window,
            principal=self.principal or None,
            provider=self.format,  # pyright: ignore[reportArgumentType]
            model=self.wire.model,
            budget=self.budget,
        )

    def answer(self, ctx: nexus.AssembledContext, text: str, calls: Sequence[Call] = (), stem: str = "") -> Any:
        """Record a reply and add it to the list."""
        stem = stem or f"call_{len(self.items)}"
        reply = self.wire.reply(text, calls, stem)
        committed = self.nx.record(ctx, reply)
        self.items += copy.deepcopy(self.wire.echo(reply))
        self.waiting = tuple(f"{stem}_{n}" for n in range(len(calls)))
        return committed

    def turn(self, text: str, answer: str, calls: Sequence[Call] = ()) -> nexus.AssembledContext:
        """One call with its reply."""
        self.say(text)
        ctx = self.context()
        self.answer(ctx, answer, calls)
        return ctx


def stored_messages(nx: nexus.Engine) -> int:
    """Number of messages in the ledger, each counted once however many sessions share it."""
    return sum(row.messages for row in nx.ledger.store.threads())

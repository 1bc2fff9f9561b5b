"""What drives a peer: the same four steps for all, so that only the peer's own work is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from msgspec import Struct

from benchmarks.peers.course import Exchange, Messages
from benchmarks.peers.registry import SUMMARY_WORDS, peer

SUMMARY = " ".join(f"point{number}" for number in range(SUMMARY_WORDS))
"""What every summarising model answers: always the same text, so that no summary is better than another."""


class Setting(Struct, frozen=True):
    """What a peer is made for: its budget, the system message, the tools in OpenAI's form."""

    budget: int
    system: str
    tools: Messages


class Usage(Struct, frozen=True):
    """The tokens that a provider would report for a call; none where there was no call."""

    input_tokens: int = 0
    output_tokens: int = 0


class Side:
    """One peer in one conversation. `summaries` counts how often a model was asked for one."""

    summaries = 0

    def hear(self, exchange: Exchange) -> None:
        """Takes what is new before a call. Not timed."""
        raise NotImplementedError

    def step(self) -> Any:
        """The peer's own work for this call, which is what is timed; raises whatever the peer raises."""
        raise NotImplementedError

    def shown(self, made: Any) -> Messages:
        """The step's result as OpenAI messages, the system message first. Not timed."""
        raise NotImplementedError

    def anthropic(self, made: Any) -> dict[str, Any] | None:
        """The step's result as an Anthropic body, from those that make one; None from all others. Not timed."""
        return None

    def say(self, exchange: Exchange, usage: Usage) -> None:
        """Takes the model's answer, and the tokens that its provider would have reported for the call. Not timed."""
        raise NotImplementedError

    def load(self, exchanges: Iterable[Exchange]) -> None:
        """Takes exchanges that are over, without a call for each. Not timed."""
        for exchange in exchanges:
            self.hear(exchange)
            self.say(exchange, Usage())


def side_of(name: str) -> Callable[[Setting], Side]:
    """The class that drives the peer of this name, imported now."""
    module, made = peer(name).place.split(":")
    return getattr(import_module(f"benchmarks.peers.{module}"), made)


def text_of(content: str | list[dict[str, Any]] | None) -> str:
    """An OpenAI message's content as one text."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part.get("type") == "text")
    return content or ""

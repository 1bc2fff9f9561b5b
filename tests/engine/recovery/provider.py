"""A provider that counts for itself: its window and vocabulary are its own, and it refuses in its own words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nexus.context import AssembledContext
from support.recount import recount


@dataclass
class Provider:
    """Refuses prompts over `window` by `refuse(window, tokens)`, or answers; `ratio` is its tokens per o200k token.

    With `silently` it never refuses: `overflow` answers empty at the limit, `ollama` cuts the prompt to whole blocks,
    `over` answers and reports more than the window.
    """

    window: int
    refuse: Callable[[int, int], Exception] | None = None
    ratio: float = 1.0
    silently: str = ""
    seen: list[int] = field(default_factory=list[int])

    def send(self, ctx: AssembledContext) -> dict[str, Any]:
        tokens = int(recount(ctx.to_openai()) * self.ratio)
        self.seen.append(tokens)
        if tokens <= self.window:
            return answer(tokens, "fine")
        if self.silently == "overflow":
            return answer(self.window, "", "length")
        if self.silently == "ollama":
            return answer(self.window // 1024 * 1024, "I see only the end of it")
        if self.silently == "over":
            return answer(tokens, "hm", "stop")
        assert self.refuse is not None
        raise self.refuse(self.window, tokens)


def answer(tokens: int, text: str, reason: str = "stop") -> dict[str, Any]:
    """A chat completion."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-4o",
        "choices": [{"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": len(text) // 4, "total_tokens": tokens},
    }


def in_words(window: int, tokens: int) -> Exception:
    """OpenAI's sentence, with both numbers."""
    return RuntimeError(
        f"Error code: 400 - This model's maximum context length is {window} tokens. However, your messages resulted in "
        f"{tokens} tokens. Please reduce the length of the messages."
    )


def without_numbers(_window: int, _tokens: int) -> Exception:
    """A sentence that tells nothing but the fact."""
    return RuntimeError("input is too long for requested model")

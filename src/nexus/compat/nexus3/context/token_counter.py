"""Document 004's token counts: text, and messages as text plus four tokens each. Works offline.

The rest of Nexus counts the request body instead (`nexus.tokens`), which is more exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from nexus.compat.nexus3 import core
from nexus.compat.nexus3.context.messages import AnyMessage, stored_messages
from nexus.errors import BadSetting
from nexus.text.message_text import text_of_result, visible_parts
from nexus.tokens import counter as budget_counter
from nexus.tokens.images import max_image_tokens
from nexus.types.message import Text
from nexus.types.sanitize import arguments_as_object

__all__ = [
    "CHARS_PER_TOKEN",
    "OVERHEAD_PER_MESSAGE",
    "SimpleTokenCounter",
    "TiktokenCounter",
    "TokenCounter",
    "get_token_counter",
]

OVERHEAD_PER_MESSAGE = 4
"""Tokens for role and framing of one message (document 004)."""

CHARS_PER_TOKEN = 4


class TokenCounter(Protocol):
    """Counts the tokens of a text and of messages."""

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        ...

    def count_messages(self, messages: list[core.Message]) -> int:
        """Return the tokens of messages: their text, their tool calls as JSON, and the overhead of each."""
        ...


class SimpleTokenCounter:
    """An estimate without a vocabulary: one token for four characters, rounded up.

    It is too low for scripts other than Latin; use `TiktokenCounter` there.
    """

    OVERHEAD_PER_MESSAGE = OVERHEAD_PER_MESSAGE

    def count(self, text: str) -> int:
        """Return a quarter of the text's length in characters, rounded up."""
        return -(-len(text) // CHARS_PER_TOKEN)

    def count_messages(self, messages: Iterable[AnyMessage]) -> int:
        """Return the estimate for each message's text, names and arguments, and four tokens for each message."""
        return _count_messages(self.count, messages)


class TiktokenCounter:
    """Exact counts with a vocabulary: `cl100k_base`, `o200k_base`, `p50k_base` or `r50k_base`.

    tiktoken counts if its vocabulary file is on this machine, else `toktok`, which contains the first two and counts the
    same. Raises BadSetting for another encoding and for one without a file, ImportError without either package.
    """

    OVERHEAD_PER_MESSAGE = OVERHEAD_PER_MESSAGE

    def __init__(self, encoding_name: str = "cl100k_base") -> None:
        if encoding_name not in ("cl100k_base", "o200k_base", "p50k_base", "r50k_base"):
            raise BadSetting(f"vocabulary {encoding_name!r} unknown (choose cl100k_base or o200k_base)")
        self.encoding_name: str = encoding_name
        try:
            exact: budget_counter.TokenCounter = budget_counter.TiktokenCounter(encoding_name)
        except (ImportError, FileNotFoundError) as error:
            if encoding_name not in ("cl100k_base", "o200k_base"):
                raise BadSetting(
                    f"vocabulary {encoding_name!r} not available offline (put tiktoken's file of it into the folder "
                    "TIKTOKEN_CACHE_DIR, or choose cl100k_base or o200k_base)"
                ) from error
            exact = budget_counter.ToktokCounter(encoding_name)
        self.name: str = exact.name
        self._count = exact.count

    def count(self, text: str) -> int:
        """Return the exact number of tokens; markup such as `<|endoftext|>` counts as text."""
        return self._count(text)

    def count_messages(self, messages: Iterable[AnyMessage]) -> int:
        """Return the tokens of each message's text, names and arguments, and four more for each message."""
        return _count_messages(self._count, messages)


def get_token_counter(use_tiktoken: bool = True) -> TokenCounter:  # noqa: FBT002 - the documented signature
    """Return an exact counter, or the estimate if `use_tiktoken` is false or no vocabulary is available."""
    if use_tiktoken:
        try:
            return TiktokenCounter()
        except ImportError:
            pass
    return SimpleTokenCounter()


def _count_messages(count: Callable[[str], int], messages: Iterable[AnyMessage]) -> int:
    """Return the tokens of messages as they are sent: no thinking or unknown parts, images by formula."""
    tokens = 0
    for message in stored_messages(messages):
        results = list(message.results())
        tokens += OVERHEAD_PER_MESSAGE * max(1, len(results))  # each result is a message of its own in chat completions
        tokens += sum(
            count(part.text) if isinstance(part, Text) else max_image_tokens(part) for part in visible_parts(message)
        )
        tokens += sum(count(call.name) + count(arguments_as_object(call.arguments)) for call in message.calls())
        tokens += sum(count(text_of_result(result)) for result in results)
    return tokens

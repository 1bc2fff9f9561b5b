"""Offline token counters for text.

Exact counting with a compiled vocabulary is faster than a useful estimate, so it is the default: `toktok`, then
`tiktoken` if its vocabulary is already on this machine, then an estimate by character classes that errs upwards. Nothing
is ever downloaded. A counter's `name` identifies the method. Markup such as `<|endoftext|>` counts as plain text (7
tokens, not 1), so that text cannot make itself look shorter. Lone surrogates count as U+FFFD, which the provider receives.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any, Literal, Protocol, TypeAlias

from nexus.tokens.model_table import local_vocabulary

Encoding: TypeAlias = Literal["o200k_base", "cl100k_base"]
OlderEncoding: TypeAlias = Literal["p50k_base", "r50k_base"]

BASE_COUNTER = "o200k_base"
"""Name of the counter of base tokens. Other ways to count by its vocabulary have names that begin with it."""

# tiktoken 0.14 panics (not an Exception) on a megabyte of spaces; slices of this length are safe.
_SLICE_CHARS = 20_000


class TokenCounter(Protocol):
    """A token counter."""

    @property
    def name(self) -> str:
        """The method, as reports and manifests name it: `o200k_base` or `estimate`, for example."""
        ...

    def count(self, text: str) -> int:
        """Return the tokens of a text, 0 for an empty one; never raises."""
        ...


def without_surrogates(text: str) -> str:
    """Return the text with surrogate pairs joined and every lone surrogate replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class ToktokCounter:
    """Exact counts with the vocabularies in the package `toktok`. Raises ImportError if it is not installed."""

    def __init__(self, encoding: Encoding = "o200k_base") -> None:
        import toktok

        self.name: str = encoding
        self._package: Any = toktok
        self._truncate = toktok.truncate

    def count(self, text: str) -> int:
        """Return the exact number of tokens."""
        # Truncating to more than any text has is the fastest public way to count one.
        try:
            return self._truncate(text, 1 << 31, self.name)[1]
        except UnicodeEncodeError:
            return self._truncate(without_surrogates(text), 1 << 31, self.name)[1]

    @property
    def vocabulary_name(self) -> str:
        """The encoding with the version of the package."""
        return f"{self.name}-toktok-{self._package.__version__}"

    def vocabulary(self) -> dict[bytes, int]:
        """Return the ranks of all tokens of the vocabulary, without special tokens."""
        tokenizer = self._package._encoding(self.name)  # noqa: SLF001 - for users of more than counts, says its docstring
        return {token: tokenizer.encode_single_token(token) for token in tokenizer.token_byte_values()}


class TiktokenCounter:
    """Exact counts with `tiktoken` and a local vocabulary. Raises ImportError or FileNotFoundError without them."""

    def __init__(self, encoding: Encoding | OlderEncoding = "o200k_base") -> None:
        import tiktoken

        if local_vocabulary(encoding) is None:
            raise FileNotFoundError(f"tiktoken vocabulary '{encoding}' not found locally (nothing is downloaded)")
        self.name: str = f"{encoding} (tiktoken)"
        self._encode = tiktoken.get_encoding(encoding).encode_ordinary

    def count(self, text: str) -> int:
        """Return the exact number of tokens; over 20,000 characters the sum of slices, a few tokens more."""
        text = without_surrogates(text)
        starts = range(0, len(text), _SLICE_CHARS)
        return sum(len(self._encode(text[start : start + _SLICE_CHARS])) for start in starts)


_LOWER = bytes(range(ord("a"), ord("z") + 1))
_UPPER = bytes(range(ord("A"), ord("Z") + 1))
_DIGITS = b"0123456789"
_SPACES = b" \t\n\r"
_CONTROLS = bytes(byte for byte in (*range(32), 127) if byte not in _SPACES)
_PUNCTUATION = bytes(byte for byte in range(33, 127) if byte not in _LOWER + _UPPER + _DIGITS)
_LEAD_2 = bytes(range(0xC0, 0xE0))
_LEAD_3 = bytes(range(0xE0, 0xF0))
_LEAD_4 = bytes(range(0xF0, 0xF8))

# Tokens per byte of each class: a linear fit to o200k over 3,800 pieces of 35 kinds of text (English, eight programming
# languages, JSON, logs, tables, base64, fourteen languages); 1.5 times the fit is at or above the truth for 95 in 100.
# Three-byte characters weigh a quarter more than the fit (0.425), so that Chinese and Japanese err upwards as well;
# control characters, which the fit did not see, count as one token for two.
_WEIGHTS = (
    (_LOWER, 0.218), (_UPPER, 0.780), (_DIGITS, 0.831), (_SPACES, 0.024), (_PUNCTUATION, 0.157),
    (_LEAD_2, 0.285), (_LEAD_3, 0.530), (_LEAD_4, 2.505), (_CONTROLS, 0.340),
)  # fmt: skip
_WORD_WEIGHT = 0.555
_UPWARDS = 1.5


class EstimateCounter:
    """An estimate by character classes, without a vocabulary; it errs upwards.

    Never above the number of UTF-8 bytes, which no byte-level vocabulary can exceed; at or above the o200k count for 95
    of 100 texts.
    """

    name: str = "estimate"

    def count(self, text: str) -> int:
        """Return the estimated number of tokens, at least 1 for a text that is not empty."""
        data = text.encode("utf-8", "replace")
        tokens = _WORD_WEIGHT * len(data.split())
        for kind, weight in _WEIGHTS:
            tokens += weight * (len(data) - len(data.translate(None, kind)))
        return min(len(data), math.ceil(tokens * _UPWARDS))


class RememberingCounter:
    """A cache around a counter for long texts: every call repeats its system prompt and tools. Thread-safe."""

    def __init__(self, counter: TokenCounter, *, texts: int = 256, min_chars: int = 64) -> None:
        self.name: str = counter.name
        self._count = counter.count
        self._cached_count = lru_cache(maxsize=texts)(counter.count)
        self._min_chars = min_chars

    def count(self, text: str) -> int:
        """Return the tokens of a text, as the wrapped counter counts them."""
        if len(text) >= self._min_chars:
            return self._cached_count(text)
        return self._count(text)


@cache
def get_counter(name: str = "o200k_base") -> TokenCounter:
    """Return the best available counter for `o200k_base` or `cl100k_base` (toktok, tiktoken, estimate), or `estimate`.

    Raises ValueError for any other name. The counter's `name` identifies the method.
    """
    if name == "estimate":
        return EstimateCounter()
    if name not in ("o200k_base", "cl100k_base"):
        raise ValueError(f"unknown counter {name!r} (use o200k_base, cl100k_base or estimate)")
    for kind in (ToktokCounter, TiktokenCounter):
        try:
            return kind(name)
        except (ImportError, FileNotFoundError):
            continue
    return EstimateCounter()

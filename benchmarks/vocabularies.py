"""Tokenizers other than Nexus's own, in the place of providers: what they count is what a provider would report.

`toktok`, which Nexus counts with, carries two of them. More come from packages that nothing else here needs and that are
not among the dependencies; where one is missing, the benchmark says so and how to get it, and goes on with the others.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any

from msgspec import Struct

from benchmarks.sessions import ROOT

EXTRA = ROOT / ".bench" / "tokenizers"


class Vocabulary(Struct, frozen=True):
    """A tokenizer: its name, a model that is served with it, and how it counts a text."""

    name: str
    model: str
    count: Callable[[str], int]


def vocabularies() -> tuple[list[Vocabulary], list[str]]:
    """All that are at hand, and a line for each package that is not."""
    if EXTRA.is_dir() and str(EXTRA) not in sys.path:
        sys.path.append(str(EXTRA))
    found, missing = list(_of_toktok()), []
    for package, wheels, make in (
        ("splintr", "splintr-rs==0.22.0", _of_splintr),
        ("ctok", "ctok==1.3.0 regex", _of_ctok),
    ):
        try:
            found.extend(make(import_module(package)))
        except ImportError as error:
            missing.append(f"without {package} ({error}): install {wheels} into {EXTRA.relative_to(ROOT)}")
    return found, missing


def _of_toktok() -> Iterator[Vocabulary]:
    import toktok

    for name, model in (("cl100k_base", "gpt-4"), ("qwen3.5", "qwen3.5-plus")):
        yield Vocabulary(name, model, _remembered(lambda text, name=name: toktok.truncate(text, 1 << 31, name)[1]))


def _of_splintr(package: Any) -> Iterator[Vocabulary]:
    """Open vocabularies; Qwen's wants its text in the composed form (NFC)."""
    named = (("llama3", "llama-3.3-70b"), ("deepseek_v3", "deepseek-v3"), ("mistral_v3", "mistral-large"))
    for name, model in named:
        tokenizer = package.Tokenizer.from_pretrained(name)
        yield Vocabulary(name, model, _remembered(lambda text, by=tokenizer: len(by.encode_ordinary(text))))


def _of_ctok(package: Any) -> Iterator[Vocabulary]:
    """A reconstruction of Claude's counts (Python 3.12 and later); its count of a text has a frame that is taken off."""
    for name, version, model in (
        ("Claude to 4.6", "3.0", "claude-sonnet-4-5"),
        ("Claude 4.7", "4.7", "claude-opus-4-7"),
    ):
        frame = package.token_count("a", version) - 1
        yield Vocabulary(
            name, model, _remembered(lambda text, v=version, frame=frame: package.token_count(text, v) - frame)
        )


def _remembered(count: Callable[[str], int]) -> Callable[[str], int]:
    return lru_cache(maxsize=10_000)(lambda text: count(unicodedata.normalize("NFC", text)) if text else 0)

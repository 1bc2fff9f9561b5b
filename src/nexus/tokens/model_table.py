"""Shipped tables of models and providers, and a local tokenizer vocabulary: the only module of `tokens` that reads files.

Both tables are read once, when first needed. `data/models.json` is built by `scripts/build_models.py`;
`data/providers.json` is maintained by hand, with the reason for each figure.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from nexus.tokens.image_rules import ImageRule
from nexus.types.decoding import decodable
from nexus.types.message import ProviderFormat
from nexus.types.settings import Effort

DEFAULT_MODEL = "claude-sonnet-5-5"
"""Model of calls that name none. A test checks that the snapshot knows no end of it within half a year."""


class PriceRow(Struct, frozen=True, forbid_unknown_fields=True):
    """Prices in USD per million tokens, as far as the sources state them."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    from_tokens: int = 0


class ModelRow(Struct, frozen=True, forbid_unknown_fields=True):
    """One model of the snapshot."""

    name: str
    provider: str
    context: int
    """Whole context window in tokens."""
    max_input: int
    """Part of the window that a prompt may fill, in tokens."""
    max_output: int = 0
    price: PriceRow | None = None
    long_prompt: PriceRow | None = None
    cache_min: int = 0
    retires: str = ""
    """Last day on which its maker serves it, YYYY-MM-DD; empty if none is announced."""
    flags: tuple[str, ...] = ()


class ModelTable(Struct, frozen=True):
    """Snapshot of models."""

    date: str
    sources: tuple[str, ...]
    units: str
    models: tuple[ModelRow, ...]
    """Sorted by name."""
    aliases: dict[str, str]
    """Undated names and the rows that they mean."""


class CacheRules(Struct, frozen=True, forbid_unknown_fields=True):
    """A provider's prompt cache: sizes in tokens, lifetimes in seconds, prices as multiples of plain input."""

    min_tokens: int
    max_breakpoints: int
    """Cache breakpoints per request; 0 if the provider caches automatically and accepts none."""
    lookback_blocks: int
    """Content blocks before a breakpoint in which a cached prefix may end; 0 for any."""
    ttl_s: int
    ttl_long_s: int
    read_factor: float
    write_factor: float
    write_long_factor: float
    why: str
    prefixes: tuple[str, ...] = ()


class ImageLimitRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A provider's limits of images; 0 is unlimited. `nexus.tokens.image_limits` has the meaning of each figure."""

    why: str
    edge_px: int
    file_bytes: int
    max_images: int
    total_bytes: int = 0
    many_images: int = 0
    many_edge_px: int = 0
    has_gif: bool = True
    has_animation: bool = True
    has_heic: bool = False
    has_error_images: bool = True
    """Whether it takes images in results that report an error."""
    has_chat_result_images: bool = True
    """Whether it takes images in results of chat completions."""


class SettingRules(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a request that models take or refuse."""

    why: str
    prefixes: tuple[str, ...] = ()
    reasoning: bool = False
    """Whether the rules apply to reasoning models only."""
    thinking: Literal["", "effort", "budget"] = "effort"
    """Whether it is told how much to think in a word or in tokens; empty for no thinking."""
    thinking_off: str = ""
    """The provider's word for no thinking; empty if it cannot be turned off."""
    thinking_tokens: tuple[int, int] = (1_024, 1_000_000)
    """Fewest and most tokens of thinking, where it is told in tokens."""
    efforts: tuple[Effort, ...] = ("low", "medium", "high")
    sampling: Literal["always", "without_thinking", "never"] = "always"
    """Whether it takes temperature and top_p."""
    one_sampling: bool = False
    """Whether it takes either temperature or top_p, not both."""
    stop: bool = True
    """Whether it takes texts at which the reply ends."""
    forces_tools: bool = True
    """Whether it can be made to call a tool."""


class Route(Struct, frozen=True, forbid_unknown_fields=True):
    """Meaning of the first part of a model name (`openrouter/…`)."""

    provider: str
    provider_format: ProviderFormat | Literal[""] = msgspec.field(default="", name="format")
    """Empty for the maker's own."""


class ContentRates(Struct, frozen=True, forbid_unknown_fields=True):
    """A family's tokens per base token by kind of text, without framing, and the framing's own tokens."""

    words: float
    """English and code."""
    dense: float
    """JSON."""
    digits: float
    """Logs and tables."""
    encoded: float
    """Base64."""
    accented: float
    """Latin script with accents, Cyrillic."""
    cjk: float
    scripts: float
    """Other scripts."""
    message: int
    """Tokens per message of text."""
    request: int
    tools: int = 0
    """Tokens of the instructions that the provider adds if a call has tools."""


class Family(Struct, frozen=True, forbid_unknown_fields=True):
    """Models whose names share a beginning."""

    prefixes: tuple[str, ...]
    family: str
    vendor: str
    token_factor: float
    """Tokens per base token, measured as `why` says."""
    why: str
    content: ContentRates | None = None
    content_why: str = ""


class ProviderTable(Struct, frozen=True, forbid_unknown_fields=True):
    """Rules of providers, routes and families, with their date and sources."""

    date: str
    sources: tuple[str, ...]
    cache: dict[str, tuple[CacheRules, ...]]
    simulated_cache: dict[str, CacheRules]
    """Rules that only the cache simulation uses, by who serves the model; they precede `cache`."""
    images: dict[str, tuple[ImageRule, ...]]
    image_limits: dict[str, ImageLimitRow]
    settings: dict[str, tuple[SettingRules, ...]]
    routes: dict[str, Route]
    families: tuple[Family, ...]


@cache
def model_table() -> ModelTable:
    """Return the shipped snapshot of models."""
    return msgspec.json.decode(_shipped("models.json"), type=decodable(ModelTable))


@cache
def model_rows() -> dict[str, ModelRow]:
    """Return the snapshot's rows by lower-case name."""
    return {row.name.lower(): row for row in model_table().models}


@cache
def provider_table() -> ProviderTable:
    """Return the shipped rules of providers."""
    return msgspec.json.decode(_shipped("providers.json"), type=decodable(ProviderTable))


def _shipped(name: str) -> bytes:
    return files("nexus.tokens").joinpath("data", name).read_bytes()


# The file name under which tiktoken stores a vocabulary (SHA-1 of its address) and the SHA-256 of its content, from
# tiktoken_ext.openai_public. tiktoken downloads a file with other content again, so such a file counts as missing.
_VOCABULARIES = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "p50k_base": (
        "ec7223a39ce59f226a68acc30dc1af2788490e15",
        "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
    ),
    "r50k_base": (
        "0ea1e91bbb3a60f729a8dc8f777fd2fc07cd8df4",
        "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    ),
}


def local_vocabulary(encoding: str) -> Path | None:
    """Return the vocabulary file that tiktoken would use without a download, or None.

    The folder is tiktoken's: `TIKTOKEN_CACHE_DIR`, else `DATA_GYM_CACHE_DIR`, else `data-gym-cache` in the temporary
    folder. A variable that is set but empty disables tiktoken's cache, so no file is local then.
    """
    if encoding not in _VOCABULARIES:
        return None
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder == "":
        return None
    name, sha256 = _VOCABULARIES[encoding]
    path = Path(folder or Path(tempfile.gettempdir()) / "data-gym-cache") / name
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        return None
    return path

"""The only module of this package that reads files: the shipped tables, and a tokenizer's vocabulary if there is one.

Both tables are read once, when first needed, and are frozen from then on. `data/models.json` is built by
`scripts/build_models.py`; `data/providers.json` is kept by hand, with the reason beside each figure.
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

from nexus.types.message import ProviderFormat


class PriceRow(Struct, frozen=True, forbid_unknown_fields=True):
    """Prices in USD per million tokens as far as the sources state them."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    from_tokens: int = 0


class ModelRow(Struct, frozen=True, forbid_unknown_fields=True):
    """One model of the snapshot. `context` is the whole window in tokens, `max_input` what of it a prompt may fill."""

    name: str
    provider: str
    context: int
    max_input: int
    max_output: int = 0
    price: PriceRow | None = None
    long_prompt: PriceRow | None = None
    cache_min: int = 0
    flags: tuple[str, ...] = ()


class ModelTable(Struct, frozen=True):
    """The snapshot: its date and sources, all rows sorted by name, and the undated names that mean one of them."""

    date: str
    sources: tuple[str, ...]
    units: str
    models: tuple[ModelRow, ...]
    aliases: dict[str, str]


class CacheRules(Struct, frozen=True, forbid_unknown_fields=True):
    """How a provider caches prompts: sizes in tokens, lives in seconds, prices as multiples of plain input.

    `marks_max` is how many marks a request may set (0: the provider caches by itself, marks are not accepted);
    `lookback_blocks` is how many content blocks before a mark a cached prefix may end (0: any).
    """

    min_tokens: int
    marks_max: int
    lookback_blocks: int
    ttl_s: int
    ttl_long_s: int
    read_factor: float
    write_factor: float
    write_long_factor: float
    why: str
    prefixes: tuple[str, ...] = ()


class Route(Struct, frozen=True, forbid_unknown_fields=True):
    """What the first part of a name (`openrouter/…`) says: who serves, and on which wire ("" for the maker's own)."""

    provider: str
    wire: ProviderFormat | Literal[""] = ""


class Family(Struct, frozen=True, forbid_unknown_fields=True):
    """Models whose names share a beginning: who makes them, and their tokens per base token (measured; see `why`)."""

    prefixes: tuple[str, ...]
    family: str
    vendor: str
    token_factor: float
    why: str


class ProviderTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of providers, routes and families, with the date and the sources they are from."""

    date: str
    sources: tuple[str, ...]
    cache: dict[str, tuple[CacheRules, ...]]
    routes: dict[str, Route]
    families: tuple[Family, ...]


@cache
def model_table() -> ModelTable:
    """The shipped snapshot of models."""
    return msgspec.json.decode(_shipped("models.json"), type=ModelTable)


@cache
def model_rows() -> dict[str, ModelRow]:
    """The snapshot's rows by name in small letters."""
    return {row.name.lower(): row for row in model_table().models}


@cache
def provider_table() -> ProviderTable:
    """The shipped rules of providers."""
    return msgspec.json.decode(_shipped("providers.json"), type=ProviderTable)


def _shipped(name: str) -> bytes:
    return files("nexus.tokens").joinpath("data", name).read_bytes()


# The file name under which tiktoken keeps a vocabulary (SHA-1 of its address) and the SHA-256 of its content, from
# tiktoken_ext.openai_public. tiktoken fetches a file of other content again, so such a file does not count as there.
_VOCABULARIES = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
}


def local_vocabulary(encoding: str) -> Path | None:
    """The vocabulary file that tiktoken would use without a download, or None. Nothing is ever fetched.

    The folder is tiktoken's: `TIKTOKEN_CACHE_DIR`, else `DATA_GYM_CACHE_DIR`, else `data-gym-cache` among the temporary
    files; a variable that is set but empty switches its cache off, so nothing is local then.
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

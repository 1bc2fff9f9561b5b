"""The hash chain: every entry's hash covers the one before it and every column that assembly reads.

The encoding is MessagePack of the columns in a fixed order, so it is unambiguous and the same on every backend.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import msgspec

MessageColumns: TypeAlias = tuple[int, str, str, str, str, str, int, str, str, int, int, int, int]
"""ord, role, id, run_id, source, model, at_ms, content, meta, tokens for OpenAI, Anthropic and Gemini, aside, as stored."""

EntryColumns: TypeAlias = tuple[int, int, str, int, int, str]
"""thread, seq, kind, turn, at_ms, body, as stored."""

_encode = msgspec.msgpack.Encoder().encode


def root_hash(tenant: str, thread: int) -> bytes:
    """The chain value before a thread's first entry; a fork takes its parent's hash at the fork instead."""
    return hashlib.sha256(_encode(("nexus-thread-1", tenant, thread))).digest()


def entry_hash(before: bytes, tenant: str, entry: EntryColumns, messages: list[MessageColumns]) -> bytes:
    """The chain value after an entry."""
    return hashlib.sha256(_encode((before, tenant, entry, messages))).digest()


def decision_hash(before: bytes, columns: tuple[str, int, str, int, str, int, str, int]) -> bytes:
    """The chain value after a view decision: tenant, thread, view, number, kind, at_seq, body, at_ms."""
    return hashlib.sha256(_encode((before, columns))).digest()

"""Reads files of conversations in OpenAI's chat form (the layouts are in `chat_file`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nexus.interop import chat_file
from nexus.interop.transcript import Transcript
from nexus.providers import openai


def read(path: Path) -> Iterator[Transcript]:
    """The file's conversations, one at a time. Raises UnreadableFile when it cannot be read or holds no message."""
    return chat_file.read(path, "openai", openai.message, _nothing)


def _nothing(_fields: dict[str, Any]) -> list[Any]:
    return []

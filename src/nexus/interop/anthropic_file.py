"""Reads files of conversations in Anthropic's form: like `chat_file`, with `system` beside the messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nexus.interop import chat_file
from nexus.interop.transcript import Transcript
from nexus.providers import anthropic


def read(path: Path) -> Iterator[Transcript]:
    """The file's conversations, one at a time, each led by its system text as a message of role `system`.

    Raises UnreadableFile when the file cannot be read or holds no message.
    """
    return chat_file.read(path, "anthropic", anthropic.message, _system)


def _system(fields: dict[str, Any]) -> list[Any]:
    system = fields.get("system")
    return [{"role": "system", "content": system}] if system else []

"""Reasoning items of OpenAI's Responses API as `Thinking`, with the whole item in `signature`, as JSON text.

Items are complete (id, summary, encrypted content), and its text is read like any other thinking. Its JSON begins
in a fixed way that distinguishes it from other providers' signatures. In `types`, because `tokens` counts these items.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import Struct

from nexus.types.message import Message, Text, Thinking
from nexus.types.sanitize import sanitize_text

_OPENING = '{"type":"reasoning"'

_KNOWN_PHASES = ("commentary", "final_answer")
PHASES = "phases"
"""Key in a message's `meta` for the phase of each of its texts; `null` for a text without one."""


class _Meta(Struct):
    phases: list[str | None] = []


_item = msgspec.json.Decoder(dict[str, Any])
_meta = msgspec.json.Decoder(_Meta)


def is_reasoning_item(part: Thinking) -> bool:
    """Return True if this thinking is a reasoning item of the Responses API, and not another provider's."""
    return part.signature.startswith(_OPENING)


def returnable_reasoning(part: Thinking) -> dict[str, Any] | None:
    """Return the item for a later request; None if it cannot be sent again.

    Without its encrypted content an item is valid only on a server that stored it (`openai` package,
    `ResponseReasoningItemParam`).
    """
    if not is_reasoning_item(part):
        return None
    try:
        item = _item.decode(sanitize_text(part.signature))
    except msgspec.MsgspecError:
        return None
    item_id, sealed, summary = item.get("id"), item.get("encrypted_content"), item.get("summary")
    if not (isinstance(item_id, str) and item_id and isinstance(sealed, str) and sealed):
        return None
    texts = [{"type": "summary_text", "text": text} for text in summary_texts(summary)]
    return {"type": "reasoning", "id": item_id, "summary": texts, "encrypted_content": sealed}


def summary_texts(summary: object) -> list[str]:
    """Return the texts of an item's summary or content; entries of another form are skipped."""
    entries = cast("list[object]", summary) if isinstance(summary, list) else []
    texts = [cast("dict[str, object]", entry).get("text") for entry in entries if isinstance(entry, dict)]
    return [text for text in texts if isinstance(text, str)]


def phases(message: Message) -> list[str]:
    """Return the phase of each text of an assistant's message (`commentary`, `final_answer`), empty if unknown.

    All are empty if the message no longer has the texts that were read.
    """
    texts = sum(isinstance(part, Text) for part in message.parts)
    if f'"{PHASES}"' in message.meta:
        try:
            stored = _meta.decode(message.meta).phases
        except msgspec.MsgspecError:
            stored = []
        if len(stored) == texts:
            return [phase if phase in _KNOWN_PHASES else "" for phase in stored]
    return [""] * texts

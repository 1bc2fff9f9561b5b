"""Reasoning items of OpenAI's Responses API as `Thinking`: the whole item stands in `signature`, as JSON text.

So nothing of it is lost (id, summary, encrypted content), the text can be read like any other thinking, and what other
providers signed can be told from it: only a text that begins as these do is such an item.
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
"""The name in a message's `meta` under which the phase of each of its texts stands, `null` for a text without one."""


class _Noted(Struct):
    phases: list[str | None] = []


_item = msgspec.json.Decoder(dict[str, Any])
_noted = msgspec.json.Decoder(_Noted)


def is_reasoning_item(part: Thinking) -> bool:
    """Whether this thinking is a reasoning item of the Responses API, and no other provider's."""
    return part.signature.startswith(_OPENING)


def returnable_reasoning(part: Thinking) -> dict[str, Any] | None:
    """The item that stands for this thinking in a later request; None if it may not go back.

    Without its encrypted content an item means something only to a server that stored it
    (`openai` package, `ResponseReasoningItemParam`).
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
    """The texts of an item's summary or content; entries of another form are passed over."""
    entries = cast("list[object]", summary) if isinstance(summary, list) else []
    found = [cast("dict[str, object]", entry).get("text") for entry in entries if isinstance(entry, dict)]
    return [text for text in found if isinstance(text, str)]


def phases(message: Message) -> list[str]:
    """What each text of an assistant's message was (`commentary`, `final_answer`), empty where that is not known.

    Nothing is known of a message whose texts are not those that were read any more.
    """
    texts = sum(isinstance(part, Text) for part in message.parts)
    if f'"{PHASES}"' in message.meta:
        try:
            noted = _noted.decode(message.meta).phases
        except msgspec.MsgspecError:
            noted = []
        if len(noted) == texts:
            return [phase if phase in _KNOWN_PHASES else "" for phase in noted]
    return [""] * texts

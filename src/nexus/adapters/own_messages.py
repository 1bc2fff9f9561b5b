"""A framework's messages: kept whole in the ledger, and sent as the same objects where nothing was changed.

A neutral message has no place for everything that a framework's message has. The other fields are in its `meta`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

import nexus
from nexus.types import Unknown

_FIELDS = "framework"
"""Key in a message's `meta`."""


def own_messages(
    visible: Sequence[nexus.Message],
    neutral: Sequence[nexus.Message],
    objects: Sequence[Any],
    rebuild: Callable[[nexus.Message], Sequence[Any]],
    as_first_sent: Callable[[Any, nexus.Message], Any] = lambda objects, _: objects,
) -> list[Any]:
    """Return the framework's messages to send: its own objects, and new ones for what was changed or added.

    `as_first_sent` gets an object and the message as it is stored, for fields that a framework adds afterwards.
    """
    places: dict[Any, list[int]] = {}
    for index, message in enumerate(neutral):
        places.setdefault(_content(message), []).append(index)
    before = len(objects)
    messages: list[Any] = []
    for message in reversed(visible):
        indexes = places.get((message.role, *map(_plain, message.parts)), [])
        while indexes and indexes[-1] >= before:
            indexes.pop()
        if indexes:
            before = indexes.pop()
            messages.append(as_first_sent(objects[before], message))
        else:
            messages.extend(reversed(rebuild(message)))
    return messages[::-1]


def _content(message: nexus.Message) -> Any:
    """Return a message's content as it is shown, where a note takes the place of a part that only the framework sends."""
    if any(isinstance(part, Unknown) for part in message.parts):
        visible, _ = nexus.repaired([message])
        message = next((noted for noted in visible if noted.role == message.role), message)
    return (message.role, *map(_plain, message.parts))


def _plain(part: Any) -> Any:
    """Return a part without what reading adds to it: an image's size, the name of a result's call."""
    if isinstance(part, nexus.Image):
        return replace(part, width=0, height=0)
    if isinstance(part, nexus.ToolResult):
        return replace(part, name="", content=tuple(map(_plain, part.content)))
    return part


def other_fields(fields: dict[str, Any], base_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that a message made from its neutral one does not have, or has with another value."""
    return {
        name: value for name, value in fields.items() if name not in base_fields or _differs(base_fields[name], value)
    }


def _differs(before: object, after: object) -> bool:
    try:
        return bool(before != after)
    except (RuntimeError, TypeError, ValueError):  # an array compares its elements, and is neither true nor false
        return True


def with_fields(message: nexus.Message, fields: dict[str, Any]) -> nexus.Message:
    """Return a message with a framework's fields, without the data of its images, which the ledger stores once."""
    values = {name: _as_json(value) for name, value in fields.items()}
    text = json.dumps({**json.loads(message.meta or "{}"), _FIELDS: values})
    for index, data in enumerate(_images(message)):
        text = text.replace(data, f"\\u0000{index}\\u0000")
    return replace(message, meta=text)


def fields_of(message: nexus.Message) -> dict[str, Any]:
    """Return the framework's fields of a message; none if another program wrote it."""
    text = message.meta or "{}"
    for index, data in enumerate(_images(message)):
        text = text.replace(f"\\u0000{index}\\u0000", data)
    return json.loads(text).get(_FIELDS) or {}


def _images(message: nexus.Message) -> Iterator[str]:
    contents = (part.content if isinstance(part, nexus.ToolResult) else (part,) for part in message.parts)
    return (part.data for content in contents for part in content if isinstance(part, nexus.Image) and part.data)


def _as_json(value: object) -> Any:
    """Return a value as JSON has it; the `repr` of one with a circle, or with keys that are no texts."""
    try:
        return json.loads(json.dumps(value, default=_json_value))
    except (RecursionError, TypeError, ValueError):
        return repr(value)


def _json_value(value: object) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else repr(value)

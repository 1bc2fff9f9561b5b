"""Members of objects in JSON text that people edit: added and removed, while all other bytes stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(strict=False)


class _Member(Struct, frozen=True):
    """A member of an object, and where its text begins and ends."""

    key: str
    start: int
    value: int
    end: int


def with_member(text: str, path: Sequence[str], key: str, value: Any) -> str:
    """Return a JSON text with one more member at the end of the object at a path of keys, in the object's own layout."""
    start = _object_at(text, path)
    members = _members(text, start)
    if not members:
        return f"{text[: start + 1]}{json.dumps(key)}: {json.dumps(value)}{text[start + 1 :]}"
    last = members[-1]
    before = start
    if len(members) > 1:
        before = text.index(",", members[-2].end)
    space = text[before + 1 : last.start]
    written = json.dumps(value)
    if "\n" in space:
        indent = space.rpartition("\n")[2]
        end = "\r\n" if "\r\n" in space else "\n"
        written = json.dumps(value, indent=indent or 2).replace("\n", end + indent)
    return f"{text[: last.end]},{space}{json.dumps(key)}: {written}{text[last.end :]}"


def without_member(text: str, path: Sequence[str], key: str) -> str:
    """Return a JSON text without a member of the object at a path of keys. Raises KeyError if it is not there."""
    members = _members(text, _object_at(text, path))
    index = next((at for at in range(len(members) - 1, -1, -1) if members[at].key == key), None)
    if index is None:
        raise KeyError(key)
    if index:
        return text[: members[index - 1].end] + text[members[index].end :]
    if len(members) > 1:
        return text[: members[0].start] + text[members[1].start :]
    return text[: members[0].start] + text[members[0].end :]


def _object_at(text: str, path: Sequence[str]) -> int:
    """Return where the object at a path begins. Of two members with one key the last counts, as for every reader."""
    at = _behind_space(text, 0)
    for key in path:
        at = [member.value for member in _members(text, at) if member.key == key][-1]
    return at


def _members(text: str, start: int) -> list[_Member]:
    """Return the members of the object that begins at a place of a valid text."""
    members: list[_Member] = []
    at = _behind_space(text, start + 1)
    while text[at] != "}":
        key, end = _DECODER.raw_decode(text, at)
        value = _behind_space(text, _behind_space(text, end) + 1)
        _, value_end = _DECODER.raw_decode(text, value)
        members.append(_Member(str(key), at, value, value_end))
        at = _behind_space(text, value_end)
        if text[at] == ",":
            at = _behind_space(text, at + 1)
    return members


def _behind_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()

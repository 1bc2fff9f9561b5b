"""Cache breakpoints of Anthropic's format: those that a request lacks, and never more than the provider takes.

Without a breakpoint Anthropic caches nothing, and each call pays for the whole prompt again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nexus.providers.received import items_of, mapping
from nexus.proxy.requests import Fields

MAX_BREAKPOINTS = 4
"""Breakpoints of one request, at most (docs.anthropic.com: prompt caching)."""

SPACING = 18
"""Blocks from one breakpoint to the one before it: the provider looks 20 blocks back, two are spare."""

AT_SYSTEM = -1
AT_TOOLS = -2
"""Places of breakpoints before the list: in the system prompt, and in the tools."""

KEY = "cache_control"
_BREAKPOINT: Fields = {"type": "ephemeral"}
_WITHOUT = ("thinking", "redacted_thinking")
"""Types of blocks that the provider takes no breakpoint on."""


def has_breakpoints(data: bytes) -> bool:
    """Return True if a body may have breakpoints of its own."""
    return b'"cache_control"' in data


def with_breakpoints(body: Fields) -> Fields:
    """Return a body with breakpoints at the end of system prompt and list, and before it; unchanged if it has any.

    Tools are before the system prompt, so that its breakpoint covers them too.
    """
    if next(_breakpoints(body), None) is not None:
        return body
    changed = dict(body)
    remaining = MAX_BREAKPOINTS
    if body.get("system"):
        changed["system"], is_added = _with_last_breakpoint(body["system"])
        remaining -= is_added
    elif tools := [*items_of(body.get("tools"))]:
        # The provider takes none on a tool that is loaded later.
        at = next((i for i in range(len(tools) - 1, -1, -1) if not mapping(tools[i]).get("defer_loading")), None)
        if at is not None:
            tools[at] = {**mapping(tools[at]), KEY: dict(_BREAKPOINT)}
            changed["tools"] = tools
            remaining -= 1
    changed["messages"] = _with_new_breakpoints(items_of(body.get("messages")), remaining)
    return changed


def with_allowed_breakpoints(body: Fields, received: Fields, *, adds: bool) -> Fields:
    """Return a fitted body with as many breakpoints as the provider takes.

    Args:
        body: The body, with breakpoints of the fitted list and the client's others.
        received: The body as the client sent it. The lifetime of its newest breakpoint is that of all in the list.
        adds: Add breakpoints if the client sets none.
    """
    client_breakpoints = [*_breakpoints(received)]
    if not client_breakpoints:
        plain = _with_limited_breakpoints(body, 0, _BREAKPOINT)
        return with_breakpoints(plain) if adds else plain
    others = {name: value for name, value in body.items() if name != "messages"}
    return _with_limited_breakpoints(
        body, MAX_BREAKPOINTS - sum(1 for _ in _breakpoints(others)), client_breakpoints[-1]
    )


def breakpoint_places(body: Fields) -> list[int]:
    """Return the places of a body's breakpoints, rising: blocks of the list up to one, `AT_SYSTEM` or `AT_TOOLS`."""
    places = set[int]()
    for place, name in ((AT_TOOLS, "tools"), (AT_SYSTEM, "system")):
        if any(KEY in mapping(part) for part in items_of(body.get(name))):
            places.add(place)
    count = 0
    for message in items_of(body.get("messages")):
        content = mapping(message).get("content")
        if isinstance(content, str):
            count += 1
        for block in items_of(content):
            count += 1
            fields = mapping(block)
            if KEY in fields or next(_breakpoints_in(fields.get("content")), None) is not None:
                places.add(count)
    if KEY in body and count:
        places.add(count)  # the provider sets it at the end
    return sorted(places)


def keeps_an_hour(body: Fields) -> bool:
    """Return True if the newest breakpoint of a body has the longer lifetime."""
    values = [*_breakpoints({name: value for name, value in body.items() if name != KEY}), body.get(KEY)]
    return next((mapping(value).get("ttl") == "1h" for value in reversed(values) if value is not None), False)


def _with_limited_breakpoints(body: Fields, max_count: int, breakpoint_: Any) -> Fields:
    """Return a body whose messages keep at most so many breakpoints, the last ones, with another value."""
    remaining = max_count
    messages: list[Any] = []
    for message in reversed(items_of(body.get("messages"))):
        blocks: list[Any] = []
        for block in reversed(items_of(mapping(message).get("content"))):
            fields = mapping(block)
            if KEY in fields:
                fields = {name: value for name, value in fields.items() if name != KEY}
                if remaining > 0:
                    fields[KEY] = breakpoint_
                remaining -= 1
            blocks.append(fields or block)
        if blocks:
            messages.append({**message, "content": blocks[::-1]})
        else:
            messages.append(message)
    return {**body, "messages": messages[::-1]}


def _with_new_breakpoints(messages: Sequence[Any], remaining: int) -> list[Any]:
    """Return messages with at most `remaining` breakpoints, from the last block backwards."""
    changed = [*messages]
    distance = SPACING
    for index in range(len(messages) - 1, -1, -1):
        if not remaining:
            break
        message = mapping(messages[index])
        content = message.get("content")
        if isinstance(content, str) and content and distance >= SPACING:
            changed[index] = {**message, "content": [{"type": "text", "text": content, KEY: dict(_BREAKPOINT)}]}
            remaining -= 1
            distance = 1
            continue
        blocks = [*items_of(content)]
        for at in range(len(blocks) - 1, -1, -1):
            if remaining and distance >= SPACING and _takes_breakpoint(blocks[at]):
                blocks[at] = {**mapping(blocks[at]), KEY: dict(_BREAKPOINT)}
                changed[index] = {**message, "content": blocks}
                remaining -= 1
                distance = 0
            distance += 1
        distance += not blocks
    return changed


def _with_last_breakpoint(system: Any) -> tuple[Any, bool]:
    """Return a system prompt with a breakpoint at its end, and whether it has one."""
    if isinstance(system, str):
        return [{"type": "text", "text": system, KEY: dict(_BREAKPOINT)}], True
    blocks = [*items_of(system)]
    if not blocks or not _takes_breakpoint(blocks[-1]):
        return system, False
    blocks[-1] = {**mapping(blocks[-1]), KEY: dict(_BREAKPOINT)}
    return blocks, True


def _takes_breakpoint(block: Any) -> bool:
    fields = mapping(block)
    is_empty = fields.get("type") == "text" and not fields.get("text")
    return bool(fields) and not is_empty and fields.get("type") not in _WITHOUT


def _breakpoints(body: Fields) -> Iterator[Any]:
    """Yield the breakpoints of a body in the order of the prompt."""
    if KEY in body:
        yield body[KEY]
    for part in (*items_of(body.get("tools")), *items_of(body.get("system"))):
        if KEY in mapping(part):
            yield mapping(part)[KEY]
    for message in items_of(body.get("messages")):
        yield from _breakpoints_in(mapping(message).get("content"))


def _breakpoints_in(content: Any) -> Iterator[Any]:
    for block in items_of(content):
        fields = mapping(block)
        if KEY in fields:
            yield fields[KEY]
        yield from _breakpoints_in(fields.get("content"))

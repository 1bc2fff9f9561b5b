"""Message lists as clients sent them, read once: a list that goes on costs only its new messages."""

from __future__ import annotations

import copy
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from threading import Lock
from typing import Any, cast

from nexus.engine.mirror.keys import KeyChain, ListScope, MessageKeys
from nexus.engine.mirror.unchanged import ListForm
from nexus.ledger.text_encoding import to_json
from nexus.providers.messages import ReadItems, detected_format, list_of_items, read_items
from nexus.providers.openai import participant_name
from nexus.providers.received import CallIndex, items_of, mapping
from nexus.text.as_received import ReceivedFormat, with_received
from nexus.types.message import Message, Text
from nexus.workspace.attachments import with_image_sizes

BREAKPOINT = "cache_control"
"""Field of Anthropic's items and blocks that ends a cached prefix."""

MAX_LISTS = 1_024
MAX_CHARACTERS = 8_000_000
"""Lists that are remembered, and the characters in them; the least recently used goes first, the newest stays."""

FIELD_CHARACTERS = 20
"""What an item's field or block takes besides its text."""


@dataclass(slots=True)
class ReadList:
    """A client's list, the messages in it, and their keys, without the system messages that it begins with."""

    scope: ListScope
    provider: ReceivedFormat | None
    model: str
    chain: KeyChain
    form: ListForm
    items: list[Any] = field(default_factory=list[Any])
    system: list[str] = field(default_factory=list[str])
    system_texts: list[list[str]] = field(default_factory=list[list[str]])
    """The texts of each system message."""
    names: list[str] = field(default_factory=list[str])
    """The participant's name of each system message; empty if it has none."""
    messages: list[Message] = field(default_factory=list[Message])
    keys: list[MessageKeys] = field(default_factory=list[MessageKeys])
    firsts: list[int] = field(default_factory=list[int])
    """Index of the first item of each message."""
    calls: CallIndex = field(default_factory=CallIndex)
    characters: int = 0
    """Size of the items, about."""
    beginning: ReadList | None = None
    """The list as it was before its newest items: a retry, an edit or a branch goes on from there. It never changes."""

    def begins(self, items: Sequence[Any]) -> bool:
        """Return True if this list is a beginning of the items."""
        size = len(self.items)
        if not 0 < size <= len(items) or not self._is_same(self.items[-1], items[size - 1]):
            return False
        return all(map(self._is_same, self.items, items))

    def _is_same(self, read_item: Any, item: Any) -> bool:
        """Return True if an item is one that was read.

        Clients set Anthropic's cache breakpoints at the end of each list, so that those of the last list are gone.
        """
        return read_item == item or (self.has_breakpoints and read_item == _without_breakpoints(item))

    @property
    def has_breakpoints(self) -> bool:
        """True for a format whose items may have breakpoints that belong to the request, and to no message."""
        return self.form.format == "anthropic"

    def extend(self, items: Sequence[Any]) -> bool:
        """Read further items; return False, and read nothing, if they belong to messages that were read before.

        These are items of the assistant behind others of the assistant, which may be one reply, and results of earlier
        calls: those before the next reply, and those without the id of a call.
        """
        read = self.read(items)
        before_reply = takewhile(lambda message: message.role != "assistant", read.messages)
        has_early = any(any(message.results()) for message in before_reply)
        new_ids = {call.id for message in read.messages for call in message.calls()}
        result_ids = {result.call_id for message in read.messages for result in message.results()}
        has_foreign = any(call_id not in self.calls.ids for call_id in result_ids - new_ids)
        roles = [message.role for message in (*self.messages[-1:], *read.messages[:1])]
        if self.items and (has_early or has_foreign or roles == ["assistant", "assistant"]):
            return False
        self.add(read, items)
        return True

    def read(self, items: Sequence[Any]) -> ReadItems:
        """Return what further items say."""
        form = self.form.format
        return read_items(items, self.provider, model=self.model, calls=self.calls, default=form, keeps_forms=True)

    def add(self, read: ReadItems, items: Sequence[Any]) -> None:
        """Add items that were read."""
        self.form = self.form.extended(read)
        for message, first in zip(read.messages, read.firsts, strict=True):
            if message.role == "system" and not self.messages:
                self.system.append(message.text())
                self.names.append(participant_name(message))
                self.system_texts.append([part.text for part in message.parts if isinstance(part, Text)])
            else:
                sized = with_image_sizes(_as_instruction(message))
                self.messages.append(sized)
                self.firsts.append(len(self.items) + first)
                self.keys.append(self.chain.keys(sized))
        for item in items:
            self.characters += _characters(item)
            if isinstance(item, Message):
                self.items.append(item)
            elif self.has_breakpoints:
                self.items.append(copy.deepcopy(_without_breakpoints(item)))
            else:
                self.items.append(copy.deepcopy(item))

    def copy(self) -> ReadList:
        """Return a list that stays as it is when this one is extended."""
        duplicate = ReadList(self.scope, self.provider, self.model, self.chain.copy(), self.form)
        duplicate.items = [*self.items]
        duplicate.system = [*self.system]
        duplicate.system_texts = [*self.system_texts]
        duplicate.names = [*self.names]
        duplicate.messages = [*self.messages]
        duplicate.keys = [*self.keys]
        duplicate.firsts = [*self.firsts]
        duplicate.calls = self.calls.copy()
        duplicate.characters = self.characters
        return duplicate


def _characters(value: Any) -> int:
    """Return about the size of an item."""
    if isinstance(value, Message):
        return len(to_json(value))
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(FIELD_CHARACTERS + _characters(field) for field in cast("dict[str, Any]", value).values())
    if isinstance(value, list):
        return sum(FIELD_CHARACTERS + _characters(block) for block in cast("list[Any]", value))
    return 0


def _without_breakpoints(item: Any) -> Any:
    """Return an item of Anthropic's format without cache breakpoints; the same one if it has none.

    Reading drops them from messages, blocks and results of tools, and nowhere else.
    """
    if not isinstance(item, dict):
        return item
    plain = dict(cast("dict[str, Any]", item))
    plain.pop(BREAKPOINT, None)
    content = plain.get("content")
    if isinstance(content, list):
        plain["content"] = [_plain_block(block) for block in cast("list[Any]", content)]
    return plain


def _plain_block(block: Any) -> Any:
    fields = mapping(block)
    if fields.get("type") == "tool_result":
        return _without_breakpoints(block)
    if BREAKPOINT in fields:
        return {name: value for name, value in fields.items() if name != BREAKPOINT}
    return block


def _newest_turn(items: Sequence[Any]) -> int:
    """Return the index of the newest item that a user wrote, as its role and parts tell; 0 without one."""
    for index in range(len(items) - 1, 0, -1):
        item = mapping(items[index])
        parts = [mapping(part) for part in items_of(item.get("content") or item.get("parts"))]
        is_result = any(_RESULT_KEYS & part.keys() or part.get("type") == "tool_result" for part in parts)
        if item.get("role") == "user" and not is_result:
            return index
    return 0


_RESULT_KEYS = {"function_response", "functionResponse"}


def _as_instruction(message: Message) -> Message:
    """Return a system message as one of a provider's list, which it is if it was read from Gemini's or is neutral, too."""
    text = message.text()
    if message.role != "system" or message.received or not text.strip():
        return message
    return with_received(message, "openai", [{"role": "system", "content": text}])


class ListCache:
    """The lists of one engine that were read last. Calls from several threads are safe."""

    def __init__(self) -> None:
        self._lists: OrderedDict[int, ReadList] = OrderedDict()
        self._numbers = count()
        self._lock = Lock()

    def read(
        self,
        items: Any,
        scope: ListScope,
        provider: ReceivedFormat | None,
        model: str,
        default: ReceivedFormat = "openai",
    ) -> ReadList:
        """Return the list's messages and keys. Raises BadEvent as `nexus.read_messages`.

        `default` is the format of messages that are plain roles and texts.
        """
        items = list_of_items(items, provider)
        with self._lock:
            number, cached = self._longest_beginning(items, scope, provider, model)
            if cached is None:
                form = ListForm(provider or default, provider is not None)
                cached = _read_anew(ReadList(scope, provider, model, KeyChain(scope.root), form), items)
            elif len(cached.items) < len(items):
                beginning = cached.copy()
                if cached.extend(items[len(cached.items) :]):
                    cached.beginning = beginning
                else:
                    form = ListForm(provider or default, provider is not None)
                    cached = _read_anew(ReadList(scope, provider, model, KeyChain(scope.root), form), items)
            self._lists[number] = cached
            characters = sum(other.characters for other in self._lists.values())
            while len(self._lists) > 1 and (len(self._lists) > MAX_LISTS or characters > MAX_CHARACTERS):
                characters -= self._lists.popitem(last=False)[1].characters
            return cached.copy()

    def _longest_beginning(
        self, items: Sequence[Any], scope: ListScope, provider: ReceivedFormat | None, model: str
    ) -> tuple[int, ReadList | None]:
        """Return a list that the items begin with, to extend, and its number; None for unknown items.

        Until it is extended it is not remembered: reading may fail in the middle.
        """
        for number, cached in reversed(self._lists.items()):
            if (cached.scope, cached.provider, cached.model) != (scope, provider, model):
                continue
            if cached.begins(items):
                del self._lists[number]
                return number, cached
            if cached.beginning is not None and cached.beginning.begins(items):
                return next(self._numbers), cached.beginning.copy()
        return next(self._numbers), None


def _answers_earlier_calls(messages: Sequence[Message]) -> bool:
    """Return True if a result among messages is not one of their own calls."""
    call_ids = {call.id for message in messages for call in message.calls()}
    return any(result.call_id not in call_ids for message in messages for result in message.results())


def _read_anew(new: ReadList, items: Sequence[Any]) -> ReadList:
    """Read a list from its first item, and keep its beginning: the newest turn may be another one the next time."""
    default = new.form.format
    read = new.read(items)
    turn = _newest_turn(items)
    count = sum(first < turn for first in read.firsts)
    is_apart = (
        count
        and read.firsts == sorted(read.firsts)
        and not new.calls.other_ids
        and not _answers_earlier_calls(read.messages[count:])
        and new.provider in (read.format, None)
        and read.format == (new.provider or detected_format(items[:turn], read.values[:turn], default))
    )
    if not is_apart:
        new.add(read, items)
        return new
    new.add(ReadItems(read.messages[:count], read.format, read.values[:turn], read.firsts[:count]), items[:turn])
    new.beginning = new.copy()
    new.beginning.calls = CallIndex()
    new.beginning.calls.add(read.messages[:count])
    firsts = [first - turn for first in read.firsts[count:]]
    new.add(ReadItems(read.messages[count:], read.format, read.values[turn:], firsts), items[turn:])
    return new


def text_positions(messages: Sequence[Sequence[str]]) -> tuple[tuple[int, int], ...]:
    """Return beginning and end of each text of system messages in their joined text, blank ones left out."""
    positions: list[tuple[int, int]] = []
    at = 0
    for texts in messages:
        if "\n".join(texts):
            for text in texts:
                positions.append((at, at + len(text)))
                at += len(text) + 1
            at += 1
    return tuple(positions)


def named_positions(messages: Sequence[str], names: Sequence[str]) -> tuple[tuple[int, int, str], ...]:
    """Return beginning, end and name of each system message in their joined text, if one has a name."""
    positions: list[tuple[int, int, str]] = []
    at = 0
    for text, name in zip(messages, names, strict=True):
        if text:
            positions.append((at, at + len(text), name))
            at += len(text) + len("\n\n")
    if any(names):
        return tuple(positions)
    return ()


def messages_of_items(firsts: Sequence[int], items: Sequence[int]) -> tuple[int, ...]:
    """Return the indexes of the messages that items are part of; an item of the head is part of none."""
    indexes = set[int]()
    order = sorted(range(len(firsts)), key=firsts.__getitem__)
    starts = [firsts[index] for index in order]
    for item in items:
        start = -1
        if starts and item >= starts[0]:
            start = starts[bisect_right(starts, item) - 1]
        indexes.update(order[bisect_left(starts, start) : bisect_right(starts, start)])
    return tuple(sorted(indexes))

"""One context with all that it is judged by: bodies, what the oracle expects, how texts are counted and compared."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

from laws.oracle import Pairing, Path, limit_of
from nexus.context import AssembledContext
from nexus.tokens.counter import get_counter
from nexus.types.ledger_entries import Cut, MessageRef, StoredMessage
from nexus.types.message import Message, Note, Text

_CACHE_MARK = re.compile(r',"cache_control":\{[^{}]*\}')
_CACHE_KEY = re.compile(r'"prompt_cache_key":"\w+",')
encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_COUNTER = get_counter()


class Broken(AssertionError):
    """A law does not hold. `law` is its name."""

    def __init__(self, law: str, what: str) -> None:
        super().__init__(f"{law}: {what}")
        self.law = law


def broken(law: str, what: object) -> NoReturn:
    """Raises Broken."""
    raise Broken(law, str(what)[:2_000])


@dataclass
class Call:
    """One context with what it has to be judged by. `largest` is what a result may take (0: no limit)."""

    ctx: AssembledContext
    path: Path
    cut: Cut | None
    budget: int
    largest: int
    event: tuple[Message, ...]
    foreign: bool = False
    image_turns: int = 0
    whole_new: bool = False
    """Whether new results are whole until a cut makes them older."""
    keeps_user_turns: bool = False
    """Whether the strategy shows excerpts of user turns."""
    bodies: dict[str, dict[str, Any]] = field(init=False)
    sent: dict[str, str] = field(init=False)
    tail: list[Message] = field(init=False)
    opening: list[Message] = field(init=False)
    expected: Pairing = field(init=False)
    shortened: int = 0
    _verbatim: set[MessageRef] | None = None

    def __post_init__(self) -> None:
        ctx = self.ctx
        self.bodies = bodies(ctx)
        self.sent = {wire: text(body) for wire, body in self.bodies.items()}
        count = len(ctx.history.opening)
        self.opening, self.tail = ctx.messages[:count], ctx.messages[count:]
        plain_until = self.cut.strip_thinking_until_seq if self.cut else self.mark_plain
        self.expected = Pairing(
            plain_until,
            bool(self.opening),
            noted=self.is_noted,
            has_tools=bool(ctx.tools),
            hides_start=self.first > MessageRef(1, 0),
        )
        self.expected.follows([*self.lead, *self.hidden_pins])
        for row in self.path.talk(self.first):
            self.expected.add(row.message, row.ref)
        for message in self.event:
            self.expected.add(message, None)
        self.expected.closed()

    def is_noted(self, place: MessageRef) -> bool:
        """Whether the images of a message are notes: those of older turns, but for pinned ones and the first task."""
        if self.cut is None or place.seq > self.cut.images_until_seq or place in self.verbatim:
            return False
        task = self.path.task()
        return task is None or task.ref != place

    @property
    def cuts(self) -> bool:
        """Whether this call decides what is left out; a decision about old images leaves that as it is."""
        return self.ctx.cut is not None and self.ctx.cut.reason != "old images"

    @property
    def mark_plain(self) -> int:
        mark = self.path.live
        return mark.seq if mark is not None and mark.kind == "compaction" else 0

    @property
    def verbatim(self) -> set[MessageRef]:
        """The places of pinned messages and of those in their groups."""
        if self._verbatim is None:
            groups = (self.path.group_of.get(place, []) for place in self.path.pins())
            self._verbatim = {place for group in groups for place in group}
        return self._verbatim

    @property
    def excerpts(self) -> list[MessageRef]:
        """The places of the messages that are shown in part: those of the cut, else of the summary."""
        if self.cut is not None:
            return list(self.cut.excerpts)
        mark = self.path.live
        stored = mark.body.get("excerpts", ()) if mark is not None else ()
        return [MessageRef(place["seq"], place["ord"]) for place in stored]

    def limit_at(self, seq: int) -> int:
        """What a result in entry `seq` may take; 0 is no limit."""
        return limit_of(self.cut, 0 if self.whole_new else self.largest, seq)

    @property
    def early(self) -> list[MessageRef]:
        """What lies before the live summary's end and can have been shown all the same."""
        mark, task = self.path.live, self.path.task()
        found = [place for pin in self.path.pins() for place in self.path.group_of.get(pin, [])]
        found += [task.ref] if task is not None else []
        asked = mark.body.get("asked") if mark is not None else None
        found += [MessageRef(asked["seq"], asked["ord"])] if asked else []
        found += self.excerpts
        return [place for place in found if place < self.path.begin]

    @property
    def first(self) -> MessageRef:
        """The first message that is shown in its place."""
        return self.cut.first if self.cut is not None else self.path.begin

    @property
    def hidden_pins(self) -> list[StoredMessage]:
        """The messages of the groups that are shown in the opening, as one of theirs is pinned."""
        groups = (self.path.group_of.get(place, [place]) for place in self.path.pins())
        shown = {place for group in groups if group[0] < self.first for place in group}
        return [row for row in self.path.talk() if row.ref in shown]

    @property
    def lead(self) -> list[StoredMessage]:
        """The beginning that stays in front of the marker."""
        if self.cut is None or self.cut.head is None:
            return []
        return self.path.talk(self.path.begin, self.cut.head)


def bodies(ctx: AssembledContext) -> dict[str, dict[str, Any]]:
    """The context in all four forms."""
    return {
        "openai": ctx.to_openai(),
        "responses": ctx.to_responses(),
        "anthropic": ctx.to_anthropic(),
        "gemini": ctx.to_gemini(),
    }


def text(body: dict[str, Any]) -> str:
    """A body as JSON, without what is no prompt: cache marks may move, and a fork has a cache key of its own."""
    return _CACHE_KEY.sub("", _CACHE_MARK.sub("", encode(body)))


@lru_cache(50_000)
def tokens(said: str) -> int:
    """Base tokens of a text as a JSON string, without any allowance."""
    return _COUNTER.count(encode(said))


def texts_of(message: Message) -> list[str]:
    """The texts of a message, notes among them, that are not blank."""
    return [part.text for part in message.parts if isinstance(part, (Text, Note)) and part.text.strip()]

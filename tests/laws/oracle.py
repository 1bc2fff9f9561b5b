"""A second reading of a session, from its entries alone: what holds, what belongs together, what has to be seen.

It shares no code with `nexus.assembly.fit`: it is written from what the documents promise. An atom is the smallest thing that a
message says: a text, a picture, a call, a result. What a call shows is compared atom by atom.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nexus.text.message_text import is_injected
from nexus.types.ledger_entries import Cut, Entry, MessageRef, StoredMessage
from nexus.types.message import Image, Message, Note, Text, Thinking, ToolCall, ToolResult, Unknown
from support.strict import is_dict, is_list

LOST = "[no result recorded]"
SUPPLIED = "[The conversation starts with the assistant.]"
SYSTEM = "[System message]"
SUMMARY = "[Previous conversation summary]\n"

Atom: TypeAlias = tuple[Any, ...]
"""`(role, text)`, `("image",)`, `("call", n)` or `("result", n, text, pictures)`; n counts the calls.

A result whose pictures are notes has two more: its text with the notes in their places, and the notes.
"""

_SURROGATE = re.compile("[\ud800-\udfff]")
_GAP = re.compile(
    r"\[… ([\d,]+) characters left out here"
    r"(?:; the whole: (`nexus history(?: --call [\w.:-]+)?`|recall\(reference=\"[\w.:-]+\"\)))? …\]"
)
_PICTURED = re.compile(r"(?:\n|\A)\[[\w/+.-]+(?: \d+x\d+)? was shown here before; it is in the ledger\]\Z")


def seen(text: str) -> str:
    """The text as any request can carry it."""
    return _SURROGATE.sub("\ufffd", text)


@dataclass
class Pairing:
    """Messages one after another: who answers whom, what is said by whom, and in which order it has to be shown."""

    plain_until: int = 0
    started: bool = False
    atoms: list[Atom] = field(default_factory=list[Atom])
    of: list[MessageRef | None] = field(default_factory=list["MessageRef | None"])
    groups: dict[MessageRef, list[MessageRef]] = field(default_factory=dict[MessageRef, list[MessageRef]])
    waiting: dict[str, tuple[int, ToolCall]] = field(default_factory=dict[str, tuple[int, ToolCall]])
    calls: int = 0
    last: Message | None = None
    group: MessageRef | None = None
    starts: set[MessageRef] = field(default_factory=set[MessageRef])
    answers: bool = False
    hides_start: bool = False
    """Whether what came before is not shown, so that a result's call may be there."""
    late: dict[str, str] = field(default_factory=dict[str, str])
    """Names of the calls that were passed over, by id."""
    early: dict[str, tuple[ToolResult, MessageRef | None]] = field(
        default_factory=dict[str, "tuple[ToolResult, MessageRef | None]"]
    )
    pending: list[tuple[Atom, MessageRef | None]] = field(default_factory=list["tuple[Atom, MessageRef | None]"])
    answered: set[str] = field(default_factory=set[str])
    met: set[str] = field(default_factory=set[str])
    """Ids of the calls so far, as they are stored."""
    noted: Callable[[MessageRef], bool] = field(default=lambda _: False)
    has_tools: bool = False
    """Whether tools are offered, so that notes name no command."""

    def follows(self, rows: Iterable[StoredMessage]) -> None:
        """Reads the messages shown before these: their calls are met, and their results are shown or may come late."""
        before = Pairing(started=True, hides_start=True)
        for row in rows:
            before.add(row.message, row.ref)
        before.closed()
        self.met, self.late = before.met, before.late

    def add(self, message: Message, place: MessageRef | None) -> None:
        """Reads the next message."""
        plain = place is not None and place.seq <= self.plain_until
        parts = list(message.parts)
        if message.role != "assistant":
            parts = [Text(f"[{_kind(p.kind)}: cannot be shown here]") if isinstance(p, Unknown) else p for p in parts]
        parts = [part for part in parts if not _nothing(part, plain=plain)]
        answered = displaced = False
        for part in parts:
            if isinstance(part, ToolResult):
                if part.call_id in self.waiting:
                    self._answered(part, place)
                    answered = True
                elif part.call_id not in self.answered:
                    displaced = self._displaced(part, place) or displaced
        if answered or (displaced and not self.waiting):
            self.last = None
        self.answers = answered
        if answered and self.group is not None and place is not None:
            self.groups[self.group].append(place)
        if displaced and not answered and place is not None:
            self.groups[place], self.group = [place], place
        if not self.waiting and self.pending:
            self.closed()
        others = [part for part in parts if not isinstance(part, ToolResult)]
        if message.role == "assistant":
            self._assistant(message, [part for part in others if not isinstance(part, (Image, Note))], place)
        else:
            self._user(message, [part for part in others if not isinstance(part, (ToolCall, Thinking))], place)

    def _noted_content(self, result: ToolResult) -> tuple[str, tuple[str, ...]]:
        """A result's text with notes in the places of its pictures, and these notes."""
        notes = {
            at: note_of(item, result.call_id, has_tools=self.has_tools)
            for at, item in enumerate(result.content)
            if isinstance(item, Image)
        }
        told = [seen(i.text) if isinstance(i, Text) else notes[at] for at, i in enumerate(result.content)]
        return "\n".join(told), tuple(notes.values())

    def _answered(self, result: ToolResult, place: MessageRef | None) -> None:
        number, _ = self.waiting.pop(result.call_id)
        self.answered.add(result.call_id)
        noted = self._noted_content(result) if self._is_noted(place) and _content(result)[1] else ()
        self._said(("result", number, *_content(result), *noted), place)

    def _displaced(self, result: ToolResult, place: MessageRef | None) -> bool:
        """A result that no call waits for: shown as text if its call was passed over, kept if its call may come."""
        name = self.late.pop(result.call_id, None)
        if name is None and result.call_id in self.met:
            return False
        if name is None and not self.hides_start:
            self.early[result.call_id] = (result, place)
            return False
        kind = "error" if result.is_error else "result"
        name = name or (_name(result.name) if result.name else "a tool")
        noted = self._is_noted(place) and _content(result)[1] > 0
        text = self._noted_content(result)[0] if noted else _content(result)[0]
        heading = f"[Late {kind} of {name} ({_safe(result.call_id)}): it came after the conversation went on]\n"
        self.pending.append((("late", heading, text, 0 if noted else _content(result)[1]), place))
        return True

    def closed(self, place: MessageRef | None = None) -> None:
        """Calls without a result are answered when somebody else speaks; what came late follows."""
        for call_id, (number, call) in self.waiting.items():
            self._said(("result", number, LOST, 0), place)
            self.late[call_id] = _name(call.name)
        for atom, of in self.pending:
            self._said(atom, of)
        self.waiting, self.pending, self.answered = {}, [], set()

    def _assistant(self, message: Message, parts: Sequence[Any], place: MessageRef | None) -> None:
        if all(isinstance(part, Thinking) for part in parts):
            return
        goes_on = self.last is not None and ((bool(message.id) and self.last.id == message.id) or bool(self.waiting))
        if not goes_on:
            self.closed()
            if not self.started:
                self.atoms.append(("user", SUPPLIED))
                self.of.append(None)
                self.started = True
            self._begins(place)
        elif place is not None and self.group is not None:
            self.groups[self.group].append(place)
        for part in parts:
            self._part(part, place)
        self.last = message if not goes_on else self.last
        early = [self.early.pop(p.id) for p in parts if isinstance(p, ToolCall) and p.id in self.early]
        for result, of in early:
            self._answered(result, of)
            self.last = None

    def _part(self, part: Any, place: MessageRef | None) -> None:
        if isinstance(part, Text):
            self._said(("assistant", seen(part.text)), place)
        elif isinstance(part, ToolCall) and part.id not in self.waiting:
            self.waiting[part.id] = (self.calls, part)
            self.met.add(part.id)
            self._said(("call", self.calls), place)
            self.calls += 1

    def _user(self, message: Message, parts: Sequence[Any], place: MessageRef | None) -> None:
        if not parts:
            return
        self.closed()
        self.last, self.started = None, True
        self._begins(place)
        if message.role == "system":
            self._said(("user", SYSTEM), place)
        for part in parts:
            if isinstance(part, Image):
                self._said(
                    ("user", note_of(part, "", has_tools=self.has_tools)) if self._is_noted(place) else ("image",),
                    place,
                )
            else:
                self._said(("user", seen(part.text)), place)

    def _is_noted(self, place: MessageRef | None) -> bool:
        return place is not None and self.noted(place)

    def _begins(self, place: MessageRef | None) -> None:
        if place is not None:
            self.starts.add(place)
            if self.answers and self.group is not None:  # what answers and goes on belongs to both
                return
            self.groups[place] = [place]
        self.group = place

    def _said(self, atom: Atom, place: MessageRef | None) -> None:
        self.atoms.append(atom)
        self.of.append(place)


def _nothing(part: Any, *, plain: bool) -> bool:
    match part:
        case Text(text):
            return not text.strip()
        case Note(kind, text):
            return not text.strip() or (plain and kind == "memory")
        case Image(data=data, url=url):
            return not (data or url)
        case Thinking():
            return plain
        case Unknown():
            return True
        case _:
            return False


def _kind(kind: str) -> str:
    return kind if re.fullmatch(r"[\w./-]{1,40}", kind, re.ASCII) else "part of an unknown kind"


def _safe(call_id: str) -> str:
    if re.fullmatch(r"[\w-]{1,40}", call_id, re.ASCII):
        return call_id
    return re.sub(r"[^A-Za-z0-9_-]", "_", call_id)[:32] or "call"


def _name(name: str) -> str:
    if re.fullmatch(r"[A-Za-z_][\w-]{0,63}", name, re.ASCII):
        return name
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:63]
    return safe if re.fullmatch(r"[A-Za-z_][\w-]{0,63}", safe, re.ASCII) else f"_{safe}"[:64]


def _content(result: ToolResult) -> tuple[str, int]:
    texts = [seen(item.text) for item in result.content if isinstance(item, Text)]
    return "\n".join(texts), sum(isinstance(item, Image) for item in result.content)


def note_of(image: Image, call_id: str, *, has_tools: bool) -> str:
    """What stands where the image of an older turn was. A model with other tools than `recall` is told no command."""
    kind = image.media_type if re.fullmatch(r"[\w/+.-]{1,40}", image.media_type, re.ASCII) else "an image"
    size = f" {image.width}x{image.height}" if image.width > 0 and image.height > 0 else ""
    call = f" --call {call_id}" if re.fullmatch(r"[\w.:-]{1,80}", call_id, re.ASCII) else ""
    again = "" if has_tools else f"; to see it again: `nexus history{call} --images FOLDER`"
    return f"[{kind}{size} was shown here before{again}]"


def atoms_shown(messages: Iterable[Message]) -> list[Atom]:
    """What messages of a context say."""
    found: list[Atom] = []
    numbers: dict[str, int] = {}
    for message in messages:
        for part in message.parts:
            match part:
                case Text(text) if message.source == "nexus:late-result":
                    found.append(("late", text, 0))
                case Image() if message.source == "nexus:late-result" and found and found[-1][0] == "late":
                    found[-1] = (*found[-1][:2], found[-1][2] + 1)
                case Text(text) | Note(text=text):
                    found.append((message.role, text))
                case Image():
                    found.append(("image",))
                case ToolCall(id=call_id):
                    numbers[call_id] = len(numbers)
                    found.append(("call", numbers[call_id]))
                case ToolResult(call_id=call_id):
                    found.append(("result", numbers.get(call_id, -1), *_content(part)))
                case _:
                    pass
    return found


def is_short_for(short: str, whole: str) -> bool:
    """Whether a text is another one with its middle left out, by the true number of characters, and says where the whole is.

    JSON is thinned out instead: it is still JSON, what is left of lists and objects comes from the whole, and so on.
    """
    gaps = list(_GAP.finditer(short))
    if not gaps:
        return False
    for gap in gaps:
        head, tail = short[: gap.start()].removesuffix("\n"), short[gap.end() :].removeprefix("\n")
        left_out = int(gap[1].replace(",", ""))
        if whole.startswith(head) and whole.endswith(tail) and len(head) + len(tail) + left_out == len(whole):
            return True
    gap = gaps[-1]
    head = short[: gap.start()].removesuffix("\n")
    if short[gap.end() :] or int(gap[1].replace(",", "")) != max(len(whole) - len(head), 1):
        return False
    try:
        return _thinner(json.loads(head), json.loads(whole))
    except ValueError:
        return False


def _thinner(short: Any, whole: Any) -> bool:
    if is_dict(short) and is_dict(whole):
        return all(name == "…" or (name in whole and _thinner(short[name], whole[name])) for name in short)
    if is_list(short) and is_list(whole):
        return len(short) <= len(whole) and (len(short) < len(whole) or all(map(_thinner, short, whole)))
    if isinstance(short, str) and isinstance(whole, str) and short != whole:
        head, _, tail = short.rpartition(" … ")
        return whole.startswith(head) and whole.endswith(tail)
    return short == whole


def without_pictures(text: str) -> tuple[str, int]:
    """A result's text without the lines that stand for pictures, and how many they are."""
    count = 0
    while line := _PICTURED.search(text):
        text, count = text[: line.start()], count + 1
    return text, count


class Path:
    """What a session's entries add up to: marks, pins, the first task, groups."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.rows: list[StoredMessage] = [row for entry in entries for row in entry.rows]
        leading = 0
        for row in entries[0].rows if entries else ():
            if row.message.role != "system":
                break
            leading += 1
        self.leading = leading
        self.clear = max((entry.seq for entry in entries if entry.kind == "clear"), default=0)
        self.live = live(entries)
        self.pairing = Pairing()
        for row in self.talk():
            if row.ref.seq > self.clear:
                self.pairing.add(row.message, row.ref)
        self.group_of = {place: group for group in self.pairing.groups.values() for place in group}

    def talk(self, first: MessageRef | None = None, until: MessageRef | None = None) -> list[StoredMessage]:
        """The rows from a place up to another, without the instructions that open the session."""
        low, high = first or MessageRef(1, 0), until or MessageRef(1 << 60, 0)
        rows = self.rows[self.leading :]
        return [row for row in rows if low <= row.ref < high]

    @property
    def begin(self) -> MessageRef:
        """Where what is neither cleared nor covered by the live summary begins."""
        return begins(self.live)

    def pins(self) -> list[MessageRef]:
        """The places that are pinned now and stand after the newest clear."""
        held: dict[MessageRef, bool] = {}
        for entry in self.entries:
            if entry.kind in ("pin", "unpin"):
                held[MessageRef(entry.body["seq"], entry.body["ord"])] = entry.kind == "pin"
        return sorted(place for place, is_held in held.items() if is_held and place.seq > self.clear)

    def task(self) -> StoredMessage | None:
        """What a user said first since the newest clear."""
        for row in self.talk(MessageRef(self.clear + 1, 0)):
            message = row.message
            if message.role == "user" and message.text().strip() and not is_injected(message):
                return row
        return None

    def said(self, place: MessageRef) -> list[Atom]:
        """What a stored message has to say, in its place in the whole conversation."""
        pairs = zip(self.pairing.atoms, self.pairing.of, strict=True)
        return [atom for atom, of in pairs if of == place]

    def place_of_call(self, number: int) -> MessageRef | None:
        """Where a call stands."""
        pairs = zip(self.pairing.atoms, self.pairing.of, strict=True)
        return next((of for atom, of in pairs if atom == ("call", number)), None)

    def notes(self, place: MessageRef) -> set[str]:
        """What of a message a cut takes away, pinned or not: memory notes, and the line over a system message of notes."""
        parts = [part for row in self.rows if row.ref == place for part in row.message.parts]
        memory = {seen(part.text) for part in parts if isinstance(part, Note) and part.kind == "memory"}
        return memory | {SYSTEM} if memory else memory

    def waiting(self) -> list[ToolCall]:
        """The calls that wait for their results, as they are stored."""
        return [call for _, call in self.pairing.waiting.values()]

    def open_calls(self) -> list[ToolCall]:
        """The calls that wait and are shown: another program's summary may cover some."""
        pairing = Pairing()
        for row in self.talk(self.begin):
            pairing.add(row.message, row.ref)
        return [call for _, call in pairing.waiting.values()]

    def last_groups(self, until: MessageRef) -> Iterator[MessageRef]:
        """The last group as it is for whoever reads from any message up to this one on."""
        for start in [row.ref for row in self.talk() if row.ref <= until]:
            pairing = Pairing()
            for row in self.talk(start):
                pairing.add(row.message, row.ref)
            if pairing.group is not None:
                yield pairing.group

    def request_before(self, first: MessageRef) -> StoredMessage | None:
        """The user's message that what begins at a place still answers: the newest one that is shown before it.

        One of nothing but notes asks nothing; an answer without its call is not shown.
        """
        for row in reversed(self.talk(MessageRef(self.clear + 1, 0), first)):
            if row.message.role != "assistant" and row.ref in self.pairing.starts:
                says = [p for p in row.message.parts if not isinstance(p, (Note, ToolResult, ToolCall, Thinking))]
                if row.message.role == "user" and all(isinstance(p, Text) and not p.text.strip() for p in says):
                    continue
                return row
        return None


def live(entries: Sequence[Entry]) -> Entry | None:
    """The newest clear, or compaction that no undo takes away."""
    out: set[int] = set()
    for entry in reversed(entries):
        if entry.kind == "undone" and entry.seq not in out:
            out.add(entry.body["of"])
        if entry.kind == "clear" or (entry.kind == "compaction" and entry.seq not in out):
            return entry
    return None


def begins(mark: Entry | None) -> MessageRef:
    """The first place that is shown after a mark."""
    if mark is None:
        return MessageRef(1, 0)
    if mark.kind == "clear":
        return MessageRef(mark.seq + 1, 0)
    return MessageRef(mark.body["first_kept"], mark.body.get("kept_ord", 0))


def size_class(available: int) -> int:
    """The largest power of two that is not more than the available tokens."""
    power = 1
    while power * 2 <= available:
        power *= 2
    return power


def without_task(summary: str) -> str:
    """A summary without the words of the first request, which is shown anyway."""
    lines = summary.split("\n")
    if lines[:1] != ["## Task"] or not lines[1:2] or not lines[1].startswith(">"):
        return summary
    rest = next((at for at, line in enumerate(lines[1:], 1) if not line.startswith(">")), len(lines))
    return "\n".join(["## Task", "> (the first message, below)", *(lines[rest:] or [""])])


def summary_task(summary: str) -> str:
    """The first line of the request that a summary quotes, without the sign that it goes on."""
    lines = summary.split("\n")
    quoted = lines[1] if lines[0] == "## Task" and len(lines) > 1 and lines[1].startswith("> ") else ""
    return " ".join(quoted[2:].split()).removesuffix("…").rstrip()


def limit_of(cut: Cut | None, largest: int, seq: int) -> int:
    """What a result in entry `seq` may take, in base tokens; 0 is no limit."""
    return cut.max_result_tokens if cut is not None and seq <= cut.truncate_until_seq else largest

"""Pins: messages that no cut or compaction omits.

Pins are messages that the user pinned, the session's first user message, the pending request, and excerpts: other
messages that the current cut keeps (see `nexus.assembly.fit.excerpts`). A pin is a whole
group, an assistant message with all its results, because anything less is invalid. Hidden pins are shown after the
summary and the omission notice, in order. User pins are verbatim and never truncated; the first user message and the
pending request are truncated if they are large compared with the window.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from nexus.assembly.fit import repair
from nexus.assembly.fit.display_rules import DisplayRules
from nexus.assembly.fit.lookup import message_lookup
from nexus.assembly.fit.truncate_results import HEAD_PERCENT, LEAST_TOKENS, shorten, truncate_text
from nexus.assembly.formats.path_format import PathFormat
from nexus.ledger.replay import conversation_rows
from nexus.text.message_text import RENDER_VERSION, is_injected, typed_text, unsendable_kind
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_price import ANY_MODEL, ImagePrice
from nexus.tokens.message_tokens import message_tokens
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import Cut, Entry, MessageRef, StoredMessage
from nexus.types.message import ATTACHED, Image, Message, Note, ProviderFormat, Text, Unknown, with_parts

FRAME_TOKENS = 40
"""Allowance for the framing of a message's truncated text."""

LABEL_TOKENS = 4
"""Allowance for the speaker and the line ends of an excerpt in a note."""

REPLY_PART = 4
LEAST_REPLY = 30
"""An excerpt of a reply shows this part of a user turn's limit, and at least so many base tokens."""

NOTE_FRAME_TOKENS = 48
"""Upper bound of the base tokens of a note's frame and heading."""

EXCERPTS_SOURCE = "nexus:excerpts"
"""Source of the note with excerpts."""

SHORT_ADDITION = 100
"""Characters of a program's text beside the user's, such as a note on an interruption, that an excerpt shows too."""

_SPEAKER = re.compile(r"^(user|assistant): ", re.MULTILINE)

NEAR = 64
"""Entries on each side of a pinned message that are searched for its group, and entries per read in a search."""

EntryReader: TypeAlias = Callable[[int, int], Iterable[Entry]]
"""Reads the entries `after < seq <= until`."""

PinKind: TypeAlias = Literal["pin", "task", "asked", "instruction", "excerpt", "digest", "withheld"]
"""Reason for a pin; the names are stored in manifests.

`pin` is a user's pin, `task` the first user message, `asked` the pending request, `instruction` an instruction in the
client's list, `excerpt` an excerpt, `digest` a digest of tool calls, and `withheld` a user turn that is not shown until
there is room.
"""

_KINDS: tuple[PinKind, ...] = ("pin", "task", "asked", "instruction", "excerpt", "digest", "withheld")


class Pinned(Struct, frozen=True):
    """A pinned message with its group, as stored."""

    place: MessageRef
    """Position of the group's first message."""

    rows: tuple[StoredMessage, ...]

    limit: int = 0
    """Base tokens of text that the pin may show; 0, for user pins, is unlimited."""

    kind: PinKind = "pin"

    frame: int = FRAME_TOKENS
    """Base tokens that the pin may take besides its text."""

    def tokens(self, wire: ProviderFormat, images: ImagePrice = ANY_MODEL) -> int:
        """Return an upper bound of the group's base tokens when it is shown in the opening."""
        stored = sum(row.size.on(wire) + images.more_in(row.message) for row in self.rows)
        if self.is_large():
            return min(stored, self.limit + self.frame)
        return stored

    def unanswered_calls(self) -> int:
        """Return the number of the group's calls without a result."""
        answered_ids = {result.call_id for row in self.rows for result in row.message.results()}
        return sum(call.id not in answered_ids for row in self.rows for call in row.message.calls())

    def is_large(self) -> bool:
        """Return True if the pin is truncated when it is shown in the opening."""
        return bool(self.limit) and any(row.size.tokens > self.limit + self.frame for row in self.rows)


def is_current(cut: Cut | None, mark: Entry | None, changed_at: int) -> bool:
    """Return True if a cut was made for the history as it is now.

    A cut from before `changed_at`, the newest clear, compaction or undo, was made for another history.
    """
    return cut is not None and cut.at_seq >= max(changed_at, mark.seq if mark else 0)


def pending_request_ref(cut: Cut | None, mark: Entry | None) -> MessageRef | None:
    """Return the position of the user message that the kept messages answer, as the cut or compaction stored it."""
    if cut is not None:
        return cut.pending_request_ref
    stored = mark.body.get("asked") if mark is not None else None
    if stored:
        return msgspec.convert(stored, decodable(MessageRef))
    return None


def excerpt_refs(cut: Cut | None, mark: Entry | None) -> tuple[tuple[MessageRef, ...], int]:
    """Return the positions of the excerpts that the cut, else the compaction, stored, and their limit in tokens."""
    if cut is not None:
        return cut.excerpts, cut.excerpt_tokens
    body = mark.body if mark is not None else {}
    return msgspec.convert(body.get("excerpts", ()), decodable(tuple[MessageRef, ...])), int(
        body.get("excerpt_tokens", 0)
    )


def excerpt_pin(row: StoredMessage, limit: int, render: int = RENDER_VERSION) -> Pinned:
    """Return the pin of an excerpt with at most `limit` base tokens. Until render version 7 it was a message by itself."""
    return Pinned(row.ref, (row,), limit, "excerpt", LABEL_TOKENS if render >= 7 else FRAME_TOKENS)


def unshown_turns(cut: Cut | None, mark: Entry | None, pins: Collection[Pinned] = ()) -> int:
    """Return the number of user turns that the cut, else the compaction, neither shows nor excerpts.

    Those that the user has pinned since are shown, and do not count.
    """
    count = 0
    if cut is not None:
        count = cut.unshown_turns
    elif mark is not None:
        count = int(mark.body.get("unshown_turns") or 0)
    pinned_places = {row.ref for pin in pins if pin.kind == "pin" for row in pin.rows}
    return max(count - len(pinned_places.intersection(withheld_refs(cut, mark))), 0)


def withheld_refs(cut: Cut | None, mark: Entry | None) -> tuple[MessageRef, ...]:
    """Return the positions of the user turns that a later cut shows when there is room."""
    if cut is not None:
        return cut.withheld_turns
    stored = None
    if mark is not None:
        stored = mark.body.get("withheld_turns")
    return msgspec.convert(stored or (), decodable(tuple[MessageRef, ...]))


def withheld_pin(row: StoredMessage) -> Pinned:
    """Return the pin of a user turn that is not shown."""
    return Pinned(row.ref, (row,), 1, "withheld")


def merge_pins(*pins: Pinned) -> tuple[Pinned, ...]:
    """Return the pins in order, each group once: as a user pin, first user message, pending request, or excerpt."""
    by_place: dict[MessageRef, Pinned] = {}
    for pin in pins:
        previous = by_place.get(pin.place)
        if previous is None or _KINDS.index(pin.kind) < _KINDS.index(previous.kind):
            by_place[pin.place] = pin
    return tuple(by_place[place] for place in sorted(by_place))


def with_note(
    pins: Iterable[Pinned],
    unshown: int,
    counter: TokenCounter,
    path_format: PathFormat,
    visible: Iterable[StoredMessage],
    before: MessageRef | None,
) -> list[Pinned]:
    """Return the pins with one note in place of all excerpts, behind the last of them. `unshown` turns are counted in it.

    `before` is the first message that is shown if no omission notice counts them: then the note is there without excerpts.
    """
    result = list(pins)
    excerpts = [pin for pin in result if pin.kind == "excerpt"]
    if excerpts:
        last = excerpts[-1].place
    elif unshown and before is not None:
        last = MessageRef(before.seq, before.ord - 1)
    else:
        return result
    lines = [
        _heading(excerpts, unshown),
        *(excerpt_line(row, pin.limit, counter, path_format) for pin in excerpts for row in pin.rows),
    ]
    hidden = {pin.place for pin in excerpts}
    shown = [row for row in visible if row.ref not in hidden]
    text = path_format.notice("\n".join(lines), "excerpts", MessageRef(last.seq, last.ord + 1), shown)
    message = Message("user", (Text(text),), source=EXCERPTS_SOURCE)
    note = Pinned(last, (StoredMessage(last, message, message_tokens(message, counter)),), kind="excerpt")
    others = [pin for pin in result if pin.kind != "excerpt"]
    return [
        *(pin for pin in others if pin.place <= last),
        note,
        *(pin for pin in others if pin.place > last),
    ]


def _heading(excerpts: Collection[Pinned], unshown: int) -> str:
    """Return the heading of a note: short, because small windows have it too."""
    if not excerpts:
        return f"[{unshown:,} earlier user turns are not shown]"
    has_endings = any(row.message.role == "assistant" for pin in excerpts for row in pin.rows)
    endings = " and how some ended" if has_endings else ""
    more = ""
    if unshown:
        more = f"; {unshown:,} more user turns are not shown"
    return f"[Earlier user turns{endings}, oldest first; long texts are shortened{more}]"


def excerpt_line(row: StoredMessage, limit: int, counter: TokenCounter, path_format: PathFormat) -> str:
    """Return a message's speaker and its text in at most `limit` base tokens: of a user the beginning, of a reply the end."""
    message = path_format.unformatted(row.message)
    if message.role == "assistant":
        head_percent = 25
    elif limit < LEAST_TOKENS:
        head_percent = 100
    else:
        head_percent = HEAD_PERCENT
    short = shorten(excerpt_text(message), most_tokens(message, limit), counter, head_percent)
    return f"{message.role}: {_SPEAKER.sub(lambda hit: chr(92) + hit[0], path_format.summary(short))}"


def most_tokens(message: Message, limit: int) -> int:
    """Return the base tokens that an excerpt of a message shows, at most."""
    if message.role == "user":
        return limit
    return max(limit // REPLY_PART, LEAST_REPLY)


def excerpt_text(message: Message) -> str:
    """Return what a message says, with the names of attached files, the kinds of others and the number of images.

    Of a user's message, long texts that a program added are left out.
    """
    text = message.text()
    typed = typed_text(message) if message.role == "user" else ""
    if typed and len(text) - len(typed) > SHORT_ADDITION:
        text = typed
    images = sum(isinstance(part, Image) for part in message.parts)
    attached = [
        part.origin.removeprefix(ATTACHED)
        for part in message.parts
        if isinstance(part, Note) and part.origin.startswith(ATTACHED)
    ]
    others = [unsendable_kind(part) for part in message.parts if isinstance(part, Unknown)]
    extras = [*attached, *others, *([f"{images} image{'' if images == 1 else 's'}"] if images else [])]
    if extras:
        return f"{text.strip()} [with {', '.join(extras)}]".lstrip()
    return text.strip()


def within_limits(pins: Iterable[Pinned], counter: TokenCounter, rules: DisplayRules) -> list[list[StoredMessage]]:
    """Return the rows of pins, each within its pin's limit."""
    return [[_truncated(row, pin.limit, counter, rules) for row in pin.rows] for pin in pins]


def _truncated(row: StoredMessage, limit: int, counter: TokenCounter, rules: DisplayRules) -> StoredMessage:
    """Return the row with its text within a limit (0: none) and its images as a line; unchanged if it is small."""
    if not limit or row.size.tokens <= limit + FRAME_TOKENS:
        return row
    images = sum(isinstance(part, Image) for part in row.message.parts)
    image_line = ""
    if images:
        image_line = f"\n[{images} images were shown here; they are in the ledger]"
    path_format = rules.path_format
    original = path_format.unformatted(row.message)
    limit = max(limit - path_format.framing_tokens, LEAST_TOKENS)
    where = message_lookup(rules.lookup, row.ref)
    text = truncate_text(_user_text(original, has_images=images > 0), limit, counter, where, rules.render)
    message = with_parts(row.message, (Text(path_format.with_text(row.message, text + image_line)),))
    return StoredMessage(row.ref, message, message_tokens(message, counter))


def _user_text(message: Message, *, has_images: bool) -> str:
    """Return attached files, then the text; for a message without text, files and images, its event metadata."""
    text = message.text()
    notes = [part for part in message.parts if isinstance(part, Note) and part.kind == "moment"]
    note_texts = [note.text for note in notes if note.origin.startswith(ATTACHED)]
    if not (has_images or note_texts or text.strip()):
        note_texts = [note.text for note in notes]
    if note_texts:
        return "\n\n".join(["\n".join(note_texts), *([text] if text else [])])
    return text


def pinned_groups(
    read: EntryReader,
    pins: Collection[MessageRef],
    first: MessageRef,
    render: int = RENDER_VERSION,
) -> tuple[Pinned, ...]:
    """Return the groups of the pinned messages from `first` on, in order."""
    groups: dict[MessageRef, Pinned] = {}
    for place in sorted(pins):
        if place < first:
            continue
        entries = read(max(place.seq - 1 - NEAR, 0), place.seq + NEAR)
        group = _group((row for entry in entries for row in conversation_rows(entry)), place, render)
        if group:
            groups[group[0].ref] = Pinned(group[0].ref, group)
    return tuple(groups[place] for place in sorted(groups))


def first_user_message(read: EntryReader, after: int, head: int, render: int = RENDER_VERSION) -> StoredMessage | None:
    """Return the first user message with text after an entry, None if there is none.

    From render version 3 on, messages that programs wrote in the user's name are passed over.
    """
    low = after
    while low < head:
        high = min(low + NEAR, head)
        for entry in read(low, high):
            for row in entry.rows:
                from_user = row.message.role == "user" and not row.message.source.startswith("nexus:")
                if from_user and row.message.text().strip() and (render < 3 or not is_injected(row.message, render)):
                    return row
        low = high
    return None


def message_at(read: EntryReader, place: MessageRef) -> StoredMessage | None:
    """Return the row at a position."""
    rows = (row for entry in read(place.seq - 1, place.seq) for row in conversation_rows(entry))
    return next((row for row in rows if row.ref == place), None)


def _group(rows: Iterable[StoredMessage], place: MessageRef, render: int) -> tuple[StoredMessage, ...]:
    """Return the atomic group that contains a message, as the repair pairs and joins it; empty if it shows nothing."""
    fold = repair.Fold(started=True, render=render)
    group: list[StoredMessage] = []
    for row in rows:
        try:
            shown_messages = repair.step(fold, row.message, plain=False)
        except repair.NotAppend:
            repair.join_last(fold, row.message, plain=False)
            group.append(row)
            continue
        starts_group = any(starts for _, starts, _ in shown_messages)
        if starts_group and not _has_shown_results(row, shown_messages):
            if any(member.ref == place for member in group):
                break
            group = []
        if shown_messages:
            group.append(row)
    if any(row.ref == place for row in group):
        return tuple(group)
    return ()


def _has_shown_results(row: StoredMessage, shown_messages: Sequence[repair.ShownMessage]) -> bool:
    """Return True if results of the message are shown, whatever else it contains."""
    contents = {part.content for part in row.message.results()}
    return any(part.content in contents for message, _, _ in shown_messages for part in message.results())

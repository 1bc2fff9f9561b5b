"""The window: the messages of a session that a call shows, and the state needed to extend them.

A window is extended entry by entry as the ledger grows. It is made again from the ledger, or from its own rows after a
cut, when what follows is more than an append. Both ways lead to the same bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from msgspec import structs

from nexus.assembly.fit import repair
from nexus.assembly.fit.client_ids import with_client_ids
from nexus.assembly.fit.display_rules import DisplayRules
from nexus.assembly.fit.instructions import is_instruction
from nexus.assembly.fit.pins import Pinned, pending_request_ref, unshown_turns, with_note, within_limits
from nexus.assembly.fit.summary_message import summary_messages
from nexus.assembly.fit.truncate_results import TruncationLimits, freed_tokens, truncate_results, with_image_notes
from nexus.ledger.replay import conversation_rows, visible_start
from nexus.tokens.content import MeasuredContent
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_price import sent_images
from nexus.tokens.message_tokens import message_tokens
from nexus.types.block import text_hash
from nexus.types.history import History
from nexus.types.ledger_entries import Cut, Entry, MessageRef, StoredMessage
from nexus.types.message import Image, Message, Note, Text, client_call_ids

MAX_SEQ = 1 << 62
"""A seq beyond all others."""

_CHECKPOINTS = frozenset({"clear", "compaction", "undone", "pin", "unpin"})


@dataclass(slots=True)
class Opening:
    """Messages before the conversation: header, summary, head, pins, omission notice, pending request."""

    messages: tuple[Message, ...] = ()
    tokens: int = 0

    header_tokens: int = 0
    """Base tokens of the message on the session's start."""

    summary_tokens: int = 0
    """Base tokens of the summary; 0 where a cut omits it."""

    lead: tuple[StoredMessage, ...] = ()
    """Rows that the strategy `middle_out` shows before the omission notice."""

    lead_tokens: int = 0

    pins: tuple[Pinned, ...] = ()
    """All pins of the path, hidden or in the conversation."""

    pinned_messages: int = 0
    pinned_tokens: int = 0

    pending_request: MessageRef | None = None
    """Position of the request that the conversation answers, if it is hidden."""

    unshown_turns: int = 0
    """Number of user turns that neither the messages nor the opening show."""

    unanswered: set[str] = field(default_factory=set[str])
    """Call ids of pinned groups without a result."""

    refs: dict[int, MessageRef] = field(default_factory=dict[int, MessageRef])
    """Position in the ledger of each message that is stored, by its index."""
    shown_pins: tuple[tuple[tuple[int, int, int], ...], tuple[str, ...]] | None = None
    """See `Window.opening_pins`."""
    pins_hash: str | None = None
    """See `Window.opening_hash`."""


@dataclass(slots=True)
class Reductions:
    """Effects of truncation and image notes on the messages, and possible savings."""

    untruncated: list[MessageRef] = field(default_factory=list[MessageRef])
    """Messages that would be reduced if they were not pinned."""

    tokens_cut: dict[MessageRef, int] = field(default_factory=dict[MessageRef, int])
    """Base tokens that were removed, by position."""

    image_notes: dict[MessageRef, bool] = field(default_factory=dict[MessageRef, bool])
    """Messages whose images are notes, and whether a result is truncated too."""

    image_savings: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """(message index, minimum tokens freed) for images that may be replaced by notes."""


@dataclass(slots=True)
class PathRange:
    """The part of the ledger path that a window shows."""

    first: MessageRef = field(default_factory=lambda: MessageRef(1, 0))
    """Position of the first message that is shown."""

    head: int = 0
    """Seq of the newest entry that was read."""
    head_hash: bytes = b""
    turn: int = 0
    """Number of the newest turn."""
    seqs: list[int] = field(default_factory=list[int])
    hashes: list[bytes] = field(default_factory=list[bytes])
    """Chain values of the entries in `seqs`."""

    def hash_at(self, seq: int) -> bytes | None:
        """Return the chain value after entry `seq`, None if this range does not have it."""
        index = bisect_left(self.seqs, seq)
        if index < len(self.seqs) and self.seqs[index] == seq:
            return self.hashes[index]
        return None

    def has_hash(self, seq: int, hex_digest: str) -> bool:
        """Return False if the range has another entry `seq` than the one with this chain value."""
        return self.hash_at(seq) in (None, bytes.fromhex(hex_digest))


@dataclass(slots=True)
class MessageIndexes:
    """Links between the messages of a window and its rows, and the messages that start something."""

    row_of: list[int] = field(default_factory=list[int])
    """Index of each message's source row, or -1."""

    shown_by: list[int] = field(default_factory=list[int])
    """Index of the row that made each message visible."""

    groups: list[int] = field(default_factory=list[int])
    """Indexes of the messages that start a group."""

    turns: list[int] = field(default_factory=list[int])
    """Indexes of the user messages that start a turn."""


@dataclass(slots=True)
class WindowCaches:
    """Values that were computed from the messages of a window for an earlier call."""

    fragments: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    """The renderers' cache of the messages, by provider format."""

    limited_fragments: dict[tuple[int, int], dict[str, list[Any]]] = field(default_factory=dict)
    """See `RequestImages`."""

    content: MeasuredContent | None = None
    """Content of opening and messages as it was last measured."""


@dataclass(slots=True)
class Window:
    """The visible messages as parallel arrays, and the state that extends them."""

    rules: DisplayRules
    cut: Cut | None = None
    opening: Opening = field(default_factory=Opening)
    reductions: Reductions = field(default_factory=Reductions)
    path: PathRange = field(default_factory=PathRange)
    fold: repair.Fold = field(default_factory=repair.Fold)

    messages: list[Message] = field(default_factory=list[Message])

    sums: list[int] = field(default_factory=lambda: [0])
    """Cumulative base tokens; one more than messages."""

    optional_tokens: list[int] = field(default_factory=list[int])
    """Base tokens of thinking and memory notes in each message, which a cut removes."""

    rows: list[StoredMessage] = field(default_factory=list[StoredMessage])
    instructions: list[StoredMessage] = field(default_factory=list[StoredMessage])
    """The rows with instructions and tools of a client's list."""

    indexes: MessageIndexes = field(default_factory=MessageIndexes)
    memory: dict[str, str] = field(default_factory=dict[str, str])
    """Text of the newest visible memory note, by source."""

    images: list[tuple[int, int, Image, bool]] = field(default_factory=list[tuple[int, int, Image, bool]])
    """Images: index of the message, number in it, and whether a pin keeps it."""

    caches: WindowCaches = field(default_factory=WindowCaches)

    @classmethod
    def open(
        cls,
        rules: DisplayRules,
        counter: TokenCounter,
        limits: TruncationLimits,
        *,
        mark: Entry | None = None,
        cut: Cut | None = None,
        pins: tuple[Pinned, ...] = (),
        lead: tuple[StoredMessage, ...] = (),
    ) -> Window:
        """Return a window with its opening and without messages. `path.first` is the position to read from.

        The opening has the header, the summary, the `lead` that a cut left in front, the hidden pins, the omission
        notice and the pending request, so that what changes with the next cut comes last. A cut
        has `limits` of its own. `mark` is the newest clear or the current compaction; the
        cut must be current (see `is_current`).
        """
        visible = [*lead, *(row for pin in pins if pin.kind != "withheld" for row in pin.rows)]
        header = (Message("user", (Text(rules.header.started),)),) if rules.header.started else ()
        first = cut.first if cut is not None else visible_start(mark)
        omits = {"asked", "excerpt", "withheld"}
        if cut is not None and not cut.shows_first_message:
            omits.add("task")
        hidden = [row for pin in pins if pin.place < first and pin.kind not in omits for row in pin.rows]
        summary = summary_messages(mark, rules, visible, hidden)
        strips_until = mark.seq if mark is not None and summary else 0
        if cut is not None:
            strips_until = cut.strip_thinking_until_seq
            summary = summary if cut.keeps_summary else ()
        header_tokens, summary_tokens = (
            sum(message_tokens(message, counter).on(rules.wire) for message in part) for part in (header, summary)
        )
        rules = replace(
            rules,
            limits=structs.replace(
                limits,
                until=cut.truncate_until_seq if cut is not None else 0,
                tokens=cut.max_result_tokens if cut is not None else 0,
                images=cut.images_until_seq if cut is not None else 0,
            ),
            plain_until=strips_until,
            verbatim=frozenset(row.ref for pin in pins if not pin.limit for row in pin.rows),
            keeps_images=frozenset(row.ref for pin in pins if pin.kind in ("pin", "task") for row in pin.rows),
        )
        opening = Opening(
            (*header, *summary),
            header_tokens + summary_tokens,
            header_tokens,
            summary_tokens,
            lead,
            pins=pins,
            pending_request=pending_request_ref(cut, mark),
            unshown_turns=unshown_turns(cut, mark, pins),
        )
        window = cls(rules, cut, opening, path=PathRange(first))
        window.fold.started = bool(opening.messages)
        window.fold.render = rules.render
        window.fold.used_ids.keeps_long = rules.wire == "anthropic" and rules.render >= repair.LONG_IDS_RENDER
        window.fold.hides_start = window.first > MessageRef(1, 0)
        window.fold.late_text = rules.path_format.late_text
        opening.lead_tokens = window._append_opening((lead,), counter)[1]
        shown_pins = [pin for pin in window.hidden_pins() if pin.kind != "asked"]
        if rules.render >= 7:  # until then each excerpt was a message
            before = first if cut is None or not cut.omission_notice else None
            shown_pins = with_note(shown_pins, opening.unshown_turns, counter, rules.path_format, visible, before)
        window._append_pins(shown_pins, counter)
        if cut is not None and cut.omission_notice:
            text = rules.path_format.notice(cut.omission_notice, "cut", cut.first, visible)
            message = Message("user", (Text(text),))
            opening.messages = (*opening.messages, message)
            opening.tokens += message_tokens(message, counter).on(rules.wire)
            window.fold.started = True
        window._append_pins([pin for pin in window.hidden_pins() if pin.kind == "asked"], counter)
        return window

    def extend(self, entries: Iterable[Entry], counter: TokenCounter, first: MessageRef | None = None) -> bool:
        """Add entries that follow the head. Return False if they are not an append and the window must be made again.

        Pass `first` to fill a new window: rows before it are skipped, checkpoints are ignored, and pieces of one message
        are joined.
        """
        joins_pieces = first is not None
        path = self.path
        for entry in entries:
            if not joins_pieces and (entry.kind in _CHECKPOINTS or self._completes_pin(entry)):
                return False
            for row in conversation_rows(entry):
                if first is not None and entry.seq <= first.seq and row.ref < first:
                    continue
                if not self._show(row, counter, joins_pieces=joins_pieces):
                    return False
            path.turn = entry.turn
            path.head = entry.seq
            path.head_hash = entry.hash
            path.seqs.append(entry.seq)
            path.hashes.append(entry.hash)
        return True

    def after_cut(self, cut: Cut, mark: Entry | None, counter: TokenCounter, pins: tuple[Pinned, ...]) -> Window:
        """Return the window that a cut leaves, made from this one's rows. A window made from the ledger is the same."""
        lead = self.opening.lead or (tuple(self.rows[: self._row_from(cut.head)]) if cut.head is not None else ())
        window = Window.open(self.rules, counter, self.rules.limits, mark=mark, cut=cut, pins=pins, lead=lead)
        window.show(self.rows[self._row_from(window.first) :], counter)
        window.path = replace(self.path, first=window.first, seqs=self.path.seqs[:], hashes=self.path.hashes[:])
        return window

    def show(self, rows: Iterable[StoredMessage], counter: TokenCounter) -> None:
        """Add rows that follow, and join pieces of one message."""
        for row in rows:
            self._show(row, counter, joins_pieces=True)

    @property
    def first(self) -> MessageRef:
        """Position of the first message that is shown."""
        return self.path.first

    @property
    def head(self) -> int:
        """Seq of the newest entry that was read."""
        return self.path.head

    @property
    def tokens(self) -> int:
        """Base tokens of opening and messages."""
        return self.opening.tokens + self.sums[-1]

    def history(self, closing: Sequence[Message] = (), closing_tokens: int = 0) -> History:
        """Return the history with these closing messages."""
        return History(
            self.opening.messages,
            self.messages,
            len(self.messages),
            tuple(closing),
            self.tokens + closing_tokens,
            self.caches.fragments,
        )

    def row_at(self, index: int) -> StoredMessage:
        """Return the source row of a message that starts a group."""
        return self.rows[self.indexes.row_of[index]]

    def rows_at(self, place: MessageRef) -> tuple[StoredMessage, ...]:
        """Return the row at a position; empty if it is not among the rows."""
        index = self._row_from(place)
        return tuple(row for row in self.rows[index : index + 1] if row.ref == place)

    def hidden_pins(self) -> tuple[Pinned, ...]:
        """Return the pins before the first visible message, which the opening must show."""
        lead = self.opening.lead
        cut = self.cut
        lead_start = lead[0].ref if lead else self.first
        lead_end = lead[-1].ref if lead else lead_start
        shows: dict[str, bool] = {"withheld": False}
        if cut is not None:
            shows |= {"task": cut.shows_first_message, "asked": cut.shows_pending_request}
        before = (pin for pin in self.opening.pins if pin.place < self.first and shows.get(pin.kind, True))
        return tuple(pin for pin in before if not lead_start <= pin.place <= lead_end)

    def pin_waits(self) -> bool:
        """Return True if the last group is pinned verbatim and its calls wait for results, which are not truncated."""
        if not (self.fold.waiting and self.rules.verbatim and self.indexes.groups):
            return False
        begin = self.row_at(self.indexes.groups[-1]).ref
        return any(place >= begin for place in self.rules.verbatim)

    def opening_pins(self) -> tuple[tuple[tuple[int, int, int], ...], tuple[str, ...]]:
        """Return the places of the pins that the opening shows, and the reason of each: position and length depend on it.

        A place is (seq, ord, flag). The flag is 1 for a pin that is truncated or not in order, plus 2 for each of its calls
        without a result: one that comes later is shown with it, and changes the opening.
        """
        if self.opening.shown_pins is None:  # an opening never changes
            pins = self.hidden_pins()
            places = (
                (pin.place.seq, pin.place.ord, int(pin.kind == "asked" or pin.is_large()) + 2 * pin.unanswered_calls())
                for pin in pins
            )
            self.opening.shown_pins = tuple(sorted({*places})), tuple(pin.kind for pin in pins)
        return self.opening.shown_pins

    def opening_hash(self) -> str:
        """Return the hash of `opening_pins`; empty without pins."""
        if self.opening.pins_hash is None:
            pins = self.opening_pins()
            self.opening.pins_hash = text_hash(repr(pins))[:32] if pins[0] else ""
        return self.opening.pins_hash

    def _row_from(self, place: MessageRef) -> int:
        """Return the index of the first row at or after a position."""
        return bisect_left(self.rows, place, key=attrgetter("ref"))

    def _completes_pin(self, entry: Entry) -> bool:
        """Return True if an entry has a result that belongs to a pin, which was read without it."""
        wanted = self.opening.unanswered
        if self.pin_waits():
            wanted = wanted | set(self.fold.waiting)
        return bool(wanted) and any(r.call_id in wanted for row in entry.rows for r in row.message.results())

    def _append_pins(self, pins: Sequence[Pinned], counter: TokenCounter) -> None:
        messages, tokens = self._append_opening(within_limits(pins, counter, self.rules), counter)
        self.opening.pinned_messages += messages
        self.opening.pinned_tokens += tokens

    def _append_opening(self, groups: Sequence[Sequence[StoredMessage]], counter: TokenCounter) -> tuple[int, int]:
        """Append rows to the opening and return how many messages they became, and their tokens.

        The fold is the one that repairs the messages after it, so that call ids stay unique.
        """
        if not any(groups):
            return 0, 0
        fold = self.fold
        wire = self.rules.wire
        # Its own arrays, but the same fold and reductions. Thinking and memory notes never return in the opening.
        scratch = Window(
            replace(self.rules, plain_until=MAX_SEQ),
            reductions=replace(self.reductions, image_savings=[]),
            fold=fold,
        )
        for rows in groups:
            fold.last_assistant = None
            scratch.show(rows, counter)
            self.opening.unanswered.update(fold.waiting)
        closing = repair.close(fold)
        first = len(self.opening.messages)
        self.opening.refs.update((first + i, scratch.rows[row].ref) for i, row in enumerate(scratch.indexes.shown_by))
        tokens = scratch.sums[-1] + sum(message_tokens(message, counter).on(wire) for message in closing)
        self.opening.messages = (*self.opening.messages, *scratch.messages, *closing)
        self.opening.tokens += tokens
        return len(scratch.messages) + len(closing), tokens

    def _show(self, row: StoredMessage, counter: TokenCounter, *, joins_pieces: bool) -> bool:
        """Add the next row. Return False if it belongs into the last message, unless `joins_pieces`."""
        if repair.step_text(self.fold, row.message):
            self.rules.count_changed_name(row.message, self.fold.changes)
            self._show_text(row)
            return True
        ids = client_call_ids(row.message)
        if self.fold.waiting.keys() & ids.keys():
            if not joins_pieces:
                return False
            self.messages, self.sums = with_client_ids(self.messages, self.sums, self.fold, ids, self.rules, counter)
        self.rules.count_changed_name(row.message, self.fold.changes)
        plain = row.ref.seq <= self.rules.plain_until
        stored = row
        row = self.rules.with_sendable_images(row, counter, self.fold.changes)
        truncated = self._truncated(row, counter)
        reduced = self._with_image_notes(row, truncated)
        if reduced is not truncated:
            self.reductions.image_notes[row.ref] = truncated is not row.message
        try:
            shown_messages = repair.step(self.fold, reduced, plain=plain)
        except repair.NotAppend:
            if not joins_pieces:
                return False
            (self.messages[-1], _, _), *shown_messages = repair.join_last(self.fold, row.message, plain=plain)
            if plain:
                optional_tokens = 0
            else:
                optional_tokens = self.rules.optional_tokens_of(row.message, row.size)
            self.optional_tokens[-1] += optional_tokens
            self.sums[-1] += self.rules.weight(row.message, row.size) + optional_tokens
        self._add_row(stored)
        for message, starts_group, altered in shown_messages:
            as_stored = (
                not altered
                and reduced is row.message
                and repair.counted_parts(message) == repair.counted_parts(row.message)
            )
            if as_stored:
                size = row.size
            else:
                size = message_tokens(message, counter)
            weight = self.rules.weight(message, size)
            if reduced is not row.message:
                self.reductions.tokens_cut[row.ref] = self.rules.weight(row.message, row.size) - weight
            synthetic = altered and not starts_group and repair.is_synthetic_result(message)
            self._add(
                message,
                weight,
                0 if plain else self.rules.optional_tokens_of(message, size),
                starts_group=starts_group,
                row=-1 if synthetic else len(self.rows) - 1,
            )
        return True

    def _show_text(self, row: StoredMessage) -> None:
        """Add a row that has only text and is shown as stored: no limit applies, and no image or memory is in it."""
        message = row.message
        size = row.size
        index = len(self.messages)
        optional_tokens = 0
        if size.optional and row.ref.seq > self.rules.plain_until:
            optional_tokens = self.rules.optional_tokens_of(message, size)
        self._add_row(row)
        self._append(message, size.on(self.rules.wire), optional_tokens, len(self.rows) - 1)
        self.indexes.groups.append(index)
        if message.role == "user" and message.source != repair.LATE_SOURCE:
            self.indexes.turns.append(index)

    def _add_row(self, row: StoredMessage) -> None:
        self.rows.append(row)
        if is_instruction(row.message):
            self.instructions.append(row)

    def _append(self, message: Message, tokens: int, optional_tokens: int, row: int) -> None:
        self.messages.append(message)
        self.sums.append(self.sums[-1] + tokens + optional_tokens)
        self.optional_tokens.append(optional_tokens)
        self.indexes.row_of.append(row)
        self.indexes.shown_by.append(len(self.rows) - 1)

    def _add(self, message: Message, tokens: int, optional_tokens: int, *, starts_group: bool, row: int) -> None:
        index = len(self.messages)
        if starts_group:
            self.indexes.groups.append(index)
            if message.role == "user" and message.source != repair.LATE_SOURCE and message.has_content():
                self.indexes.turns.append(index)
        self._append(message, tokens, optional_tokens, row)
        if any(isinstance(part, Note) and part.kind == "memory" for part in message.parts):
            parts = self.rules.path_format.unformatted(message).parts
            self.memory.update({p.origin: p.text for p in parts if isinstance(p, Note) and p.kind == "memory"})
        is_pinned = self.indexes.row_of[index] >= 0 and self.row_at(index).ref in self.rules.keeps_images
        self.images.extend((index, number, image, is_pinned) for number, image in enumerate(sent_images(message)))
        tokens_freed = freed_tokens(message, self.rules.images)
        if tokens_freed and not is_pinned:
            self.reductions.image_savings.append((index, tokens_freed))

    def _truncated(self, row: StoredMessage, counter: TokenCounter) -> Message:
        """Return the message with tool results within the limits; the same object if none is too large."""
        seq = row.ref.seq
        limits = self.rules.limits
        limit = limits.limit(seq)
        if row.message.role == "assistant" or not limit or row.size.tokens <= limit:
            return row.message
        keeps_images = not limits.aged(seq) or seq <= limits.images  # images up to `images` become notes anyway
        lookup = self.rules.lookup
        render = self.rules.render
        message = truncate_results(row.message, limit, counter, keeps_images=keeps_images, lookup=lookup, render=render)
        if message is not row.message and row.ref in self.rules.verbatim:
            self.reductions.untruncated.append(row.ref)
            return row.message
        return message

    def _with_image_notes(self, row: StoredMessage, message: Message) -> Message:
        """Return the message with notes for images, if the cut says so and it is not a pin that keeps them."""
        if row.ref.seq > self.rules.limits.images or row.message.role == "assistant":
            return message
        noted = with_image_notes(message, row.ref, self.rules.lookup)
        if noted is not message and row.ref in self.rules.keeps_images:
            self.reductions.untruncated.append(row.ref)
            return message
        return noted

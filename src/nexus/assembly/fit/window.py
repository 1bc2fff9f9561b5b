"""What stands before the conversation: when the session was started, and what was summarised."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nexus.assembly.fit import repair
from nexus.assembly.fit.clip import TruncationLimits, truncate_results
from nexus.assembly.fit.images import freed_tokens, with_image_notes
from nexus.assembly.fit.pins import Pinned, pending_request_ref, within_limits
from nexus.assembly.forms.protocol import AS_GIVEN, Shape
from nexus.ledger.replay import conversation_rows, visible_start
from nexus.text.frames import escape
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_price import ANY_MODEL, ImagePrice
from nexus.tokens.measure import message_tokens
from nexus.tokens.model_names import same_model
from nexus.types.history import PLAIN, History, HistoryHeader
from nexus.types.ledger_entries import Cut, Entry, MessageRef, StoredMessage
from nexus.types.message import Message, Note, ProviderFormat, Text, TokenSize


def session_header_messages(opens: HistoryHeader) -> tuple[Message, ...]:
    """The message on the session's start, if the profile has one."""
    return (Message("user", (Text(opens.started),)),) if opens.started else ()


def summary_messages(
    mark: Entry | None, opens: HistoryHeader, shape: Shape, stays: Iterable[StoredMessage]
) -> tuple[Message, ...]:
    """The summary of the compaction that holds, under the profile's words; nothing in it can look like them.

    `stays` are the rows that are shown though it stands for them too.
    """
    if mark is None or mark.kind != "compaction":
        return ()
    told = str(mark.body.get("summary", ""))
    text = f"{opens.summary_heading}{escape(told) if shape is AS_GIVEN else told}"
    return (Message("user", (Text(shape.mark(text, "compaction", visible_start(mark), stays)),)),)


END = 1 << 62
"""A seq beyond all others."""


@dataclass(slots=True)
class Window:
    """Parallel arrays over what is shown, and what is needed to extend them.

    `plain_until` is the seq up to which messages are shown without thinking and memory notes: the head at the last cut.
    `wire` is the form whose tokens count, `images` what images cost; `memory` has the newest memory note shown, by its origin; `pieces` is the
    last assistant message as stored, with all pieces that were joined to it.
    `row_of` is the row that a message stands for (-1: none), `shown_by` the one with which it came to be shown.
    `asides` is what of each message's tokens is thinking or memory, which a cut takes away. `clips` limits results of
    tools, but those at the places in `verbatim` (`spared`: those that it would shorten); `clipped` has the tokens that were
    taken off, by place. `pictures` are the messages whose images could become notes, with the tokens that this would free at
    least; `noted` those where they are, and whether a result is shortened too; pins at the places in `keeps` keep theirs.
    `opens` and `shape` say how the opening begins and looks, `begun_tokens` what the message on the session's start takes of it. `first` is where
    what is shown begins; of the `pins`, those before it are `pinned` messages of the opening and take `pinned_tokens` of it.
    `lead` are rows before it that are shown before the marker, and take `lead_tokens`. `asked` is the place of the request
    that the shown messages answer, where it lies before them. `lacking` are calls of groups in the opening without a result.
    """

    opening: tuple[Message, ...]
    opening_tokens: int
    plain_until: int
    head: int
    head_hash: bytes
    cut: Cut | None = None
    turn: int = 0
    messages: list[Message] = field(default_factory=list[Message])
    sums: list[int] = field(default_factory=lambda: [0])
    groups: list[int] = field(default_factory=list[int])
    turns: list[int] = field(default_factory=list[int])
    rows: list[StoredMessage] = field(default_factory=list[StoredMessage])
    optional_tokens: list[int] = field(default_factory=list[int])
    row_of: list[int] = field(default_factory=list[int])
    shown_by: list[int] = field(default_factory=list[int])
    seqs: list[int] = field(default_factory=list[int])
    hashes: list[bytes] = field(default_factory=list[bytes])
    memory: dict[str, str] = field(default_factory=dict[str, str])
    fold: repair.Fold = field(default_factory=repair.Fold)
    fragments: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    summary_tokens: int = 0
    header: HistoryHeader = PLAIN
    shape: Shape = AS_GIVEN
    header_tokens: int = 0
    pieces: Message | None = None
    first: MessageRef = field(default_factory=lambda: MessageRef(1, 0))
    pins: tuple[Pinned, ...] = ()
    pinned_messages: int = 0
    pinned_tokens: int = 0
    lead: tuple[StoredMessage, ...] = ()
    lead_tokens: int = 0
    limits: TruncationLimits = field(default_factory=TruncationLimits)
    verbatim: frozenset[MessageRef] = frozenset()
    pending_request: MessageRef | None = None
    untruncated: list[MessageRef] = field(default_factory=list[MessageRef])
    tokens_cut: dict[MessageRef, int] = field(default_factory=dict[MessageRef, int])
    image_savings: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    image_notes: dict[MessageRef, bool] = field(default_factory=dict[MessageRef, bool])
    keeps_images: frozenset[MessageRef] = frozenset()
    unanswered: set[str] = field(default_factory=set[str])
    wire: ProviderFormat = "openai"
    model: str = ""
    images: ImagePrice = ANY_MODEL

    @property
    def tokens(self) -> int:
        """Base count of everything shown: opening and messages."""
        return self.opening_tokens + self.sums[-1]

    def view(self, closing: Sequence[Message] = (), closing_tokens: int = 0) -> History:
        """The history as it stands now."""
        return History(
            self.opening,
            self.messages,
            len(self.messages),
            tuple(closing),
            self.tokens + closing_tokens,
            self.fragments,
        )

    def weight(self, message: Message, size: TokenSize) -> int:
        """The base tokens of a message here, what is aside not among them."""
        return size.on(self.wire) + self.images.more_in(message)

    def optional_tokens_of(self, message: Message, size: TokenSize) -> int:
        """What of a message's thinking and memory notes counts here: thinking only where it is sent back.

        That is in Anthropic's form, to the model that wrote it.
        """
        if message.role != "assistant" or not size.optional:
            return size.optional
        return size.optional if self.wire == "anthropic" and same_model(message.model, self.model) else 0

    def hidden_pins(self) -> tuple[Pinned, ...]:
        """The pins before what is shown: they have to stand in the opening."""
        begin = self.lead[0].place if self.lead else self.first
        end = self.lead[-1].place if self.lead else begin
        cut = self.cut
        gone = {kind for kind, stays in (("task", cut.task), ("asked", cut.request)) if not stays} if cut else ()
        before = (pin for pin in self.pins if pin.place < self.first and pin.kind not in gone)
        return tuple(pin for pin in before if not begin <= pin.place <= end)

    def pin_waits(self) -> bool:
        """Whether calls of the last group wait for results that will belong to a pin, and are never shortened then."""
        if not (self.fold.waiting and self.verbatim and self.groups):
            return False
        begin = self.rows[self.row_of[self.groups[-1]]].place
        return any(place >= begin for place in self.verbatim)

    def completes_pin(self, entry: Entry) -> bool:
        """Whether an entry has a result that belongs to a pin: the pin was read without it."""
        wanted = self.unanswered | set(self.fold.waiting) if self.pin_waits() else self.unanswered
        return bool(wanted) and any(r.call_id in wanted for row in entry.rows for r in row.message.results())

    def visible_pins(self) -> set[tuple[int, int, int]]:
        """The pins that show in the opening or in the size of results: entry, place in it, and 1 if not in order or whole."""
        hidden = {(p.place.seq, p.place.ord, int(p.kind == "asked" or p.is_large())) for p in self.hidden_pins()}
        return hidden | {(place.seq, place.ord, 0) for place in self.untruncated}

    def hash_at(self, seq: int) -> bytes | None:
        """The chain value after entry `seq`, if this window read it."""
        index = bisect_left(self.seqs, seq)
        return self.hashes[index] if index < len(self.seqs) and self.seqs[index] == seq else None


def start(
    counter: TokenCounter,
    *,
    mark: Entry | None = None,
    cut: Cut | None = None,
    changed_at: int = 0,
    wire: ProviderFormat = "openai",
    model: str = "",
    pins: tuple[Pinned, ...] = (),
    lead: tuple[StoredMessage, ...] = (),
    largest: int = 0,
    images: ImagePrice = ANY_MODEL,
    opens: HistoryHeader = PLAIN,
    shape: Shape = AS_GIVEN,
) -> tuple[Window, MessageRef]:
    """An empty window, and the place from which to read: after a cut, from what a compaction kept, after a clear.

    The opening has the summary, the `lead` that a cut left in front, the groups of `pins` that lie before that place,
    the marker, and the request that the kept messages answer: what changes with the next cut stands last. Results of tools are shortened to `largest` base tokens (0: not at all), or as the cut says.

    `mark` is the newest clear or compaction that holds. The later of mark and cut decides; a cut from before
    `changed_at` (the newest clear, compaction or undo) was made for another history and does not hold.
    """
    stays = [*lead, *(row for pin in pins for row in pin.rows)]
    opening, begun = summary_messages(mark, opens, shape, stays), session_header_messages(opens)
    first, plain_until = visible_start(mark), mark.seq if mark is not None and opening else 0
    if not is_current(cut, mark, changed_at):
        cut, lead = None, ()
    marker = ""
    if cut is not None:
        opening = opening if cut.keeps_summary else ()
        first, plain_until, marker = cut.first, cut.plain_until, cut.marker
    summary, first_line = (sum(message_tokens(m, counter).on(wire) for m in part) for part in (opening, begun))
    opening, tokens = (*begun, *opening), summary + first_line
    window = Window(opening, tokens, plain_until, 0, b"", cut, wire=wire, model=model, images=images, first=first)
    window.summary_tokens, window.header_tokens, window.header, window.shape = summary, first_line, opens, shape
    window.fold.started = bool(opening)
    window.pins, window.lead, window.pending_request = pins, lead, pending_request_ref(cut, mark)
    window.verbatim = frozenset(row.place for pin in pins if not pin.limit for row in pin.rows)
    window.keeps_images = frozenset(row.place for pin in pins if pin.kind != "asked" for row in pin.rows)
    window.limits = TruncationLimits(largest)
    if cut is not None:
        window.limits = TruncationLimits(largest, cut.clip_until, cut.clip_tokens, cut.images_until)
    window.lead_tokens = _open_with(window, (lead,), counter)[1]
    pinned = [pin for pin in window.hidden_pins() if pin.kind != "asked"]
    window.pinned_messages, window.pinned_tokens = _open_with(window, within_limits(pinned, counter, shape), counter)
    if marker:
        message = Message("user", (Text(shape.mark(marker, "cut", first, stays)),))
        window.opening = (*window.opening, message)
        window.opening_tokens += message_tokens(message, counter).on(wire)
        window.fold.started = True
    asked = [pin for pin in window.hidden_pins() if pin.kind == "asked"]
    messages, tokens = _open_with(window, within_limits(asked, counter, shape), counter)
    window.pinned_messages += messages
    window.pinned_tokens += tokens
    return window, first


def is_current(cut: Cut | None, mark: Entry | None, changed_at: int) -> bool:
    """Whether a cut was made for the history as it is now."""
    return cut is not None and cut.at_seq >= max(changed_at, mark.seq if mark else 0)


def _open_with(window: Window, groups: Sequence[Sequence[StoredMessage]], counter: TokenCounter) -> tuple[int, int]:
    """Puts rows at the end of the opening, repaired by the same fold as what follows, so that ids stay unique.

    Returns how many messages they became and their tokens.
    """
    if not any(groups):
        return 0, 0
    aside = Window((), 0, END, 0, b"", wire=window.wire, model=window.model, images=window.images, fold=window.fold)
    aside.limits, aside.verbatim, aside.keeps_images = window.limits, window.verbatim, window.keeps_images
    aside.untruncated, aside.tokens_cut, aside.image_notes = window.untruncated, window.tokens_cut, window.image_notes
    for rows in groups:
        window.fold.tail = None
        for row in rows:
            _show(aside, row, counter, fresh=True)
        window.unanswered.update(window.fold.waiting)
    lacking = repair.missing_results(window.fold)
    window.fold.waiting, window.fold.answered, window.fold.tail = {}, set(), None
    tokens = aside.sums[-1] + sum(message_tokens(message, counter).on(window.wire) for message in lacking)
    window.opening = (*window.opening, *aside.messages, *lacking)
    window.opening_tokens += tokens
    return len(aside.messages) + len(lacking), tokens


def extend(window: Window, entries: Iterable[Entry], counter: TokenCounter, first: MessageRef | None = None) -> bool:
    """Adds entries that follow the window's head. False: they are no mere append, the window must be made anew.

    `first` is given when a window is filled for the first time: rows before it are not shown, marks are passed over,
    and pieces of one message are joined.
    """
    fresh = first is not None
    for entry in entries:
        if entry.kind in ("clear", "compaction", "undone", "pin", "unpin") and not fresh:
            return False
        if not fresh and window.completes_pin(entry):
            return False
        for row in conversation_rows(entry):
            if first is not None and row.place < first:
                continue
            if not _show(window, row, counter, fresh=fresh):
                return False
        window.turn = entry.turn
        window.head, window.head_hash = entry.seq, entry.hash
        window.seqs.append(entry.seq)
        window.hashes.append(entry.hash)
    return True


def restart(old: Window, cut: Cut, mark: Entry | None, counter: TokenCounter, pins: tuple[Pinned, ...]) -> Window:
    """The window that a cut leaves, made from the old one's rows: the same as one made anew from the ledger."""
    lead = old.lead or tuple(row for row in old.rows if cut.head is not None and row.place < cut.head)
    window, first = start(
        counter,
        mark=mark,
        cut=cut,
        wire=old.wire,
        model=old.model,
        pins=pins,
        lead=lead,
        largest=old.limits.max_tokens,
        images=old.images,
        opens=old.header,
        shape=old.shape,
    )
    window.head, window.head_hash = old.head, old.head_hash
    begin = next((index for index, row in enumerate(old.rows) if row.place >= first), len(old.rows))
    for row in old.rows[begin:]:
        _show(window, row, counter, fresh=True)
    window.seqs, window.hashes = old.seqs[:], old.hashes[:]
    window.turn = old.turn
    return window


def _show(window: Window, row: StoredMessage, counter: TokenCounter, *, fresh: bool) -> bool:
    plain = row.place.seq <= window.plain_until
    short = is_truncated(window, row, counter)
    stored = _with_notes(window, row, short)
    if stored is not short:
        window.image_notes[row.place] = short is not row.message
    try:
        shown = repair.step(window.fold, stored, plain=plain)
    except repair.NotAppend:
        if not fresh:
            return False
        return _join(window, row, plain=plain)
    window.rows.append(row)
    if shown and shown[-1][0].role == "assistant":
        window.pieces = row.message
    for message, starts_group, altered in shown:
        whole = (
            not altered
            and stored is row.message
            and repair.without_thinking_loss(message) == repair.without_thinking_loss(row.message)
        )
        size = row.size if whole else message_tokens(message, counter)
        aside = 0 if plain else window.optional_tokens_of(message, size)
        if stored is not row.message:
            window.tokens_cut[row.place] = window.weight(row.message, row.size) - window.weight(message, size)
        _add(
            window,
            message,
            window.weight(message, size),
            aside,
            starts_group=starts_group,
            row=-1 if altered and not starts_group and repair.is_synthetic_result(message) else None,
        )
    return True


def is_truncated(window: Window, row: StoredMessage, counter: TokenCounter) -> Message:
    """The row's message with results of tools within the window's limits; the same object where none is too large."""
    seq = row.place.seq
    limit, aged = window.limits.limit(seq), window.limits.aged(seq)
    if row.message.role == "assistant" or not limit or row.size.tokens <= limit:
        return row.message
    message = truncate_results(row.message, limit, counter, pictures=not aged or seq <= window.limits.images)
    if message is row.message:
        return message
    if row.place in window.verbatim:
        window.untruncated.append(row.place)
        return row.message
    return message


def _with_notes(window: Window, row: StoredMessage, message: Message) -> Message:
    """The message with notes for images, where the cut in force says so; pinned ones and the first task keep theirs."""
    if row.place.seq > window.limits.images or row.message.role == "assistant":
        return message
    noted = with_image_notes(message)
    if noted is not message and row.place in window.keeps_images:
        window.untruncated.append(row.place)
        return message
    return noted


def _add(window: Window, message: Message, tokens: int, aside: int, *, starts_group: bool, row: int | None) -> None:
    index = len(window.messages)
    if starts_group:
        window.groups.append(index)
        if message.role == "user" and message.has_content():
            window.turns.append(index)
    window.messages.append(message)
    window.sums.append(window.sums[-1] + tokens + aside)
    window.optional_tokens.append(aside)
    window.row_of.append(len(window.rows) - 1 if row is None else row)
    window.shown_by.append(len(window.rows) - 1)
    if any(isinstance(part, Note) and part.kind == "memory" for part in message.parts):
        notes = (part for part in window.shape.given(message).parts if isinstance(part, Note))
        window.memory.update({note.origin: note.text for note in notes if note.kind == "memory"})
    tokens_freed = freed_tokens(message, window.images)
    if tokens_freed and window.rows[window.row_of[index]].place not in window.keeps_images:
        window.image_savings.append((index, tokens_freed))


def _join(window: Window, row: StoredMessage, *, plain: bool) -> bool:
    """Puts a later piece of the last assistant message where it belongs: into that message."""
    assert window.pieces is not None
    joined = window.pieces = repair.join_pieces(window.pieces, row.message)
    window.rows.append(row)
    window.fold.tail = None
    for call in window.messages[-1].calls():
        window.fold.used.pop(call.id, None)
    window.fold.waiting.clear()
    shown = repair.step(window.fold, joined, plain=plain)
    window.messages[-1] = shown[-1][0]
    aside = 0 if plain else window.optional_tokens_of(row.message, row.size)
    window.optional_tokens[-1] += aside
    window.sums[-1] += window.weight(row.message, row.size) + aside
    return True

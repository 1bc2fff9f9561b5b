"""The formats `tagged` and `tagged_stable`: the open turn as messages, earlier turns in blocks.

The user's text is framed in `[THIS_MOMENT]`, after its time. The blocks report the newest entries of earlier turns.
`tagged_stable` keeps the beginning of these blocks fixed and evicts older entries by a cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC

from msgspec.structs import replace

from nexus.assembly.fit.display_rules import DisplayRules
from nexus.assembly.fit.pins import Pinned, is_current, merge_pins, message_at, pending_request_ref, pinned_groups
from nexus.assembly.fit.window import Window
from nexus.assembly.formats.path_format import LedgerView, PathFormat
from nexus.assembly.formats.protocol import FilledWindow, View
from nexus.ledger.replay import conversation_rows, visible_start
from nexus.services.tagged import MergedEntry, merge_rows, moment_block, moment_time
from nexus.services.tagged_blocks import MEMORY, MOMENT_SOURCE, OPENINGS, dialogue_rows, memory_entry_limit
from nexus.text.message_text import escape_note, with_unsendable_as_notes
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import message_tokens
from nexus.types.history import OLDER_ENTRIES, Memory, PreviousTurns
from nexus.types.ledger_entries import Cut, Entry, MessageRef, StoredMessage
from nexus.types.message import Image, Message, Note, Text, with_parts
from nexus.types.profile import MessageFormatName
from nexus.types.sanitize import sanitize_text

ENTRIES_PER_READ = 256
"""Entries that are read at a time, from the newest back."""

FEWER_ENTRIES = (20, 12, 6, 3, 1, 0)
"""Numbers of earlier entries to try, in order, if the budget has no room for all."""

UNFRAMED_ORIGINS = ("", "nexus:moment", "nexus:runtime-context", "nexus:date-time", MOMENT_SOURCE)
"""Sources of notes that are not shown before the frame: the frame has the time already."""


class FramedMessages(PathFormat):
    """Path format in which user messages are framed."""

    def event(self, messages: tuple[Message, ...], _head: int, _principal: str, /) -> tuple[Message, ...]:
        """Return the messages of an event, framed."""
        return tuple(map(framed, messages))


FRAMED = FramedMessages()


class TaggedFormat:
    """The open turn as messages; blocks with a fixed number of earlier entries."""

    name: MessageFormatName = "tagged"
    memory: Memory | None = MEMORY
    lists_tools = True
    is_hashed = True
    openings: Mapping[str, str] = OPENINGS

    def on_path(self, _counter: TokenCounter, /) -> PathFormat:
        """Return the shared path format, which has no state."""
        return FRAMED

    def fill_window(
        self,
        reading: LedgerView,
        view: View,
        cut: Cut | None,
        counter: TokenCounter,
        *,
        starts_turn: bool,
        path_format: PathFormat | None = None,
    ) -> FilledWindow:
        """Fill a window with the open turn, empty if the event starts one, and return the turns before it.

        Messages that a clear hides, a compaction summarized or a cut of this view omitted are excluded from both.
        """
        del path_format
        live = reading.live
        head = reading.head[0]
        if not is_current(cut, live.checkpoint, live.changed_at):
            cut = None
        begin = visible_start(live.checkpoint)
        if cut is not None and cut.reason == OLDER_ENTRIES:
            begin = max(begin, cut.first)
        # Blocks report the newest entries, and each turn has at least one, so no more turns than entries are read.
        entries = _newest_entries(reading, begin.seq, turns=PreviousTurns().max_entries + 1)
        turn = entries[-1].turn if entries else 0
        turn_entries = [] if starts_turn else [entry for entry in entries if entry.turn == turn]
        turn_start = turn_entries[0].seq if turn_entries else head + 1
        if turn_entries:
            first = max(MessageRef(turn_start, 0), begin)
        else:
            first = MessageRef(turn_start, 0)
        turn_cut = None
        if cut is not None and turn_entries and cut.reason != OLDER_ENTRIES and cut.first >= first:
            turn_cut = cut
            first = max(first, cut.first)
        visible = [framed_entry(entry, counter) for entry in turn_entries]
        pins = _requests(visible, pending_request_ref(turn_cut, live.checkpoint), view)
        pins += pinned_groups(
            lambda after, until: [entry for entry in visible if after < entry.seq <= until],
            live.pins,
            MessageRef(turn_start, 0),
            view.render,
        )
        rules = DisplayRules(
            view.provider_format,
            view.model,
            view.images,
            path_format=FRAMED,
            lookup=view.lookup,
            render=view.render,
            image_limits=view.image_limits,
        )
        window = Window.open(rules, counter, view.limits, cut=turn_cut, pins=merge_pins(*pins))
        window.path.first = first
        if cut is not None and (turn_cut or cut.reason == OLDER_ENTRIES):
            window.cut = cut
        else:
            window.cut = None
        window.fold.started = window.fold.hides_start = True  # blocks precede it
        window.extend(visible, counter, first)
        (window.path.head, window.path.head_hash), window.path.turn = reading.head, turn
        return FilledWindow(window, None, _previous_turns(reading, entries, begin, turn_start, view.render))

    def entry_limits(self, previous: PreviousTurns, last_count: int | None, /) -> Sequence[int]:
        """Return the limits to try. Within a turn the count may not rise, so that the preamble stays the same."""
        if last_count is None:
            limit = previous.max_entries
        else:
            limit = min(last_count, previous.max_entries)
        return (limit, *(fewer for fewer in FEWER_ENTRIES if fewer < limit))

    def covered_messages(self, previous: PreviousTurns, /) -> tuple[int, frozenset[MessageRef]]:
        """Return the number of reported entries and the positions of their messages, pinned messages included."""
        reported = self._reported(previous, merge_rows(dialogue_rows(previous))[0])
        places = (previous.rows[index][1].ref for entry in reported for index, _ in entry.rows)
        pinned = {row.ref for _, row in previous.pinned if row.message.role != "tool"}
        return len(reported), frozenset(places) | pinned

    def plan_eviction(self, _previous: PreviousTurns, _window: Window, _view: View, _number: int, /) -> Cut | None:
        """Return None: the block is rewritten in every turn."""
        return None

    def reply(self, message: Message, _is_offered: Callable[[str], bool], _call_id: str, /) -> Message:
        """Return the message: a tag in a reply is text."""
        return message

    def plain_text(self, message: Message, /) -> str:
        """Return the message's text."""
        return message.text()

    def _limit(self, previous: PreviousTurns) -> int:
        return previous.max_entries

    def _reported(self, previous: PreviousTurns, entries: Sequence[MergedEntry]) -> Sequence[MergedEntry]:
        limit = self._limit(previous)
        if limit:
            return entries[-limit:]
        return []


class TaggedStableFormat(TaggedFormat):
    """The open turn as messages; blocks that only grow until a cut evicts their older entries."""

    name: MessageFormatName = "tagged_stable"

    def plan_eviction(self, previous: PreviousTurns, window: Window, view: View, number: int, /) -> Cut | None:
        """Return the cut by which older entries leave the blocks, None if all are reported."""
        entries = merge_rows(dialogue_rows(previous))[0]
        reported = self._reported(previous, entries)
        if len(reported) == len(entries):
            return None
        first = window.first
        if reported:
            first = previous.rows[reported[0].rows[0][0]][1].ref
        count = sum(len(entry.rows) for entry in entries[: len(entries) - len(reported)])
        return Cut(view.name, number, window.head, first, "", count, 0, 0, reason=OLDER_ENTRIES)

    def _limit(self, previous: PreviousTurns) -> int:
        return memory_entry_limit(previous)


TAGGED = TaggedFormat()
TAGGED_STABLE = TaggedStableFormat()


def framed(message: Message) -> Message:
    """Return a user message as one framed text, then its images; any other message unchanged.

    A message that was recorded in another format gets its own time, in UTC. Other notes become texts before the frame.
    """
    if message.role != "user":
        return message
    message = with_unsendable_as_notes(message)
    notes = [part for part in message.parts if isinstance(part, Note)]
    times = [note.text for note in notes if note.origin == MOMENT_SOURCE]
    if times:
        time = times[0]
    else:
        time = moment_time(message.at_ms or None, UTC)
    note_texts = [
        Text(escape_note(sanitize_text(note.text), note.origin))
        for note in notes
        if note.origin not in UNFRAMED_ORIGINS
    ]
    images = [part for part in message.parts if isinstance(part, Image)]
    if not (times or note_texts or images or message.text()):
        return message  # a timestamp without a message
    text = moment_block(time, sanitize_text(message.text()))
    return with_parts(message, (*note_texts, Text(text), *images))


def framed_entry(entry: Entry, counter: TokenCounter) -> Entry:
    """Return an entry with its user messages framed and recounted."""
    return replace(entry, rows=tuple(_framed_row(row, counter) for row in entry.rows))


def _framed_row(row: StoredMessage, counter: TokenCounter) -> StoredMessage:
    message = framed(row.message)
    if message is row.message:
        return row
    return StoredMessage(row.ref, message, message_tokens(message, counter))


def _previous_turns(
    reading: LedgerView, entries: Sequence[Entry], begin: MessageRef, end: int, render: int
) -> PreviousTurns:
    """Return the messages from `begin` to entry `end`, the summary before them, and the pinned messages.

    From render version 7 on, the request of the turn that a compaction divided stands before its answer.
    """
    rows = [
        (entry.turn, row)
        for entry in entries
        if entry.seq < end
        for row in conversation_rows(entry)
        if row.ref >= begin
    ]
    mark = reading.live.checkpoint
    request_ref = pending_request_ref(None, mark)
    if render >= 7 and request_ref is not None and rows and request_ref < begin == visible_start(mark):
        request = message_at(reading.entries, request_ref)
        if request is not None:
            rows = [(rows[0][0], request), *rows]
    summary = ""
    if mark is not None and mark.kind == "compaction":
        summary = str(mark.body.get("summary", ""))
    groups = pinned_groups(reading.entries, reading.live.pins, MessageRef(reading.live.cleared_at + 1, 0))
    # Negative numbers: pins have no turn, and rows of different pins must not be merged.
    pinned = [(-number, row) for number, pin in enumerate(groups, 1) for row in pin.rows if row.ref.seq < end]
    return PreviousTurns(rows, summary, pinned)


def _newest_entries(reading: LedgerView, first_seq: int, turns: int) -> Sequence[Entry]:
    """Return the newest entries from `first_seq` on, oldest first: more than `turns` turns, if there are as many."""
    entries: list[Entry] = []
    end = reading.head[0]
    while end >= first_seq:
        after = max(end - ENTRIES_PER_READ, first_seq - 1)
        entries = [*reading.entries(after, end), *entries]
        if entries and len({entry.turn for entry in entries}) > turns:
            break
        end = after
    return entries


def _requests(entries: list[Entry], request_ref: MessageRef | None, view: View) -> list[Pinned]:
    """Return the message that waits for its answer, as a pin; nothing if it is not among the entries."""
    pins: list[Pinned] = []
    for entry in entries:
        for row in entry.rows:
            if row.ref == request_ref:
                pins.append(Pinned(row.ref, (row,), view.max_tool_result_tokens, "asked"))
    return pins

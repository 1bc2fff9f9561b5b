"""The history of a context, told message by message: shown, shortened, summarised, cleared or left out, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nexus.analysis.explain.lines import EXCERPT_CHARS, ExplainedLine, message_line, share, supplied_line
from nexus.assembly.fit.cut import FitResult
from nexus.assembly.fit.images import images_of
from nexus.assembly.fit.pins import FRAME_TOKENS, Pinned
from nexus.assembly.fit.repair import is_interruption, is_synthetic_result
from nexus.assembly.fit.window import Window
from nexus.assembly.token_report import to_provider_tokens
from nexus.context import AssembledContext
from nexus.ledger.replay import visible_start
from nexus.types.ledger_entries import Entry, MessageRef, StoredMessage
from nexus.types.message import Message, Text, Thinking, ToolCall, ToolResult
from nexus.types.profile import ONE_TURN

_WHY_PINNED = {
    "pin": "pinned",
    "task": "first task",
    "asked": "asked: the request that the kept messages answer",
}


@dataclass(frozen=True, slots=True)
class HistoryExplainer:
    """A context's window beside the path that it is of. `marks` are the path's up to the call, newest first."""

    ctx: AssembledContext
    fitted: FitResult
    marks: Sequence[Entry]

    @property
    def window(self) -> Window:
        """The history that is shown."""
        return self.fitted.window

    def to_provider_tokens(self, base: int) -> int:
        """Base tokens in the provider's."""
        return to_provider_tokens(base, self.ctx.provenance.manifest.factor)

    def lines(self, entries: Iterable[Entry]) -> Iterator[ExplainedLine]:
        """The path's messages in order; the summary and the marker where what they stand for ends."""
        shown, supplied = self._shown()
        opening, summary, marker = self._opening()
        yield from self._begun()
        leading = True
        before = True
        for entry in entries:
            for row in entry.rows:
                leading = leading and _leads(row)
                if before and row.place >= self.window.first:
                    yield from (*summary, *marker)
                    before = False
                if leading:
                    why = "session instructions: a block of the system slot"
                    yield message_line("included", row, why, 0, 0)
                elif row.place in opening:
                    yield opening[row.place]
                    yield from self._noted(row)
                elif row.place >= self.window.first:
                    yield from supplied.get(row.place, ())
                    yield shown[row.place]
                    yield from self._noted(row)
                else:
                    yield self._hidden(row)
        if before:
            yield from (*summary, *marker)
        yield from self._closing()

    def _ledger_items(self) -> list[int]:
        """The account's tokens for the opening without pins, for pins, and for the conversation."""
        found = [
            item.tokens
            for item in self.ctx.accounting.token_breakdown
            if item.slot == "history" and item.source == "nexus:ledger"
        ]
        conversation = found.pop()
        return [*found, *([0] * (2 - len(found))), conversation]

    def _opening(self) -> tuple[dict[MessageRef, ExplainedLine], list[ExplainedLine], list[ExplainedLine]]:
        """The head and the pins that stand before what is shown, by place; the summary; the marker."""
        window = self.window
        told, pinned_tokens, _ = self._ledger_items()
        lead = [row for row in window.lead if not _leads(row)]
        weights = share(window.lead_tokens, [window.weight(row.message, row.size) for row in lead]) if lead else []
        beside = window.pinned_tokens + window.summary_tokens + window.lead_tokens + window.header_tokens
        marker_tokens = window.opening_tokens - beside
        summary_part, marker_part, *parts = share(told, [window.summary_tokens, marker_tokens, *weights])
        found = {
            row.place: self._kept(row, "head: what stays in front", tokens)
            for row, tokens in zip(lead, parts, strict=True)
        }
        hidden = [(pin, row) for pin in window.hidden_pins() for row in pin.rows]
        sizes = [
            pin.limit + FRAME_TOKENS if _is_short(pin, row) else window.weight(row.message, row.size)
            for pin, row in hidden
        ]
        for (pin, row), tokens in zip(hidden, share(pinned_tokens, sizes) if hidden else [], strict=True):
            short = _is_short(pin, row) or self._is_clipped(row)
            found[row.place] = self._kept(row, _WHY_PINNED[pin.kind], tokens, short=short)
        return found, self._summary(summary_part), self._marker(marker_part)

    def _begun(self) -> Iterator[ExplainedLine]:
        """The message on the session's start, which is in no entry."""
        for item in self.ctx.accounting.token_breakdown:
            if item.source == "nexus:session-start":
                why = "the first message: never cut, never summarised"
                text = self.window.header.started
                yield ExplainedLine(
                    "included", "marker", "history", item.name, why, item.tokens, item.tokens, text=text
                )

    def _summary(self, tokens: int) -> list[ExplainedLine]:
        mark = self._mark()
        if mark is None or not self.window.summary_tokens:
            return []
        covered = f"stands for entries {mark.body.get('covers_from')} to {mark.body.get('covers_to')}"
        why = f"{covered}: compaction at entry {mark.seq}"
        text = " ".join(str(mark.body.get("summary", "")).split())[:EXCERPT_CHARS]
        return [ExplainedLine("included", "summary", "history", "summary", why, tokens, tokens, text=text)]

    def _marker(self, tokens: int) -> list[ExplainedLine]:
        cut = self.window.cut
        if cut is None or not cut.marker:
            return []
        why = f"{self._cut()} left out {cut.left_out_messages:,} messages before what follows"
        return [
            ExplainedLine(
                "included", "marker", "history", "marker", why, tokens, tokens, text=cut.marker[:EXCERPT_CHARS]
            )
        ]

    def _shown(self) -> tuple[dict[MessageRef, ExplainedLine], dict[MessageRef, list[ExplainedLine]]]:
        """The rows from the window's first on, by place, and what was supplied before some of them."""
        window = self.window
        *_, conversation = self._ledger_items()
        sizes = [after - before for before, after in zip(window.sums, window.sums[1:], strict=False)]
        parts = share(conversation, [*sizes, self.fitted.closing_tokens])
        own: dict[int, list[int]] = {}
        supplied: dict[MessageRef, list[ExplainedLine]] = {}
        for index, row in enumerate(window.shown_by):
            if _is_supplied(window, index):
                line = supplied_line(window.messages[index], parts[index])
                supplied.setdefault(window.rows[row].place, []).append(line)
            else:
                own.setdefault(row, []).append(index)
        shown: dict[MessageRef, ExplainedLine] = {}
        for row, more in _joined(window, own):
            tokens = sum(parts[index] for index in own.get(row, ()))
            rows = [window.rows[one] for one in (row, *more)]
            if row not in own:
                shown[rows[0].place] = self._dropped(rows[0])
                continue
            last = bool(window.groups) and own[row][-1] >= window.groups[-1]
            for one, part in zip(rows, share(tokens, [one.size.on(window.wire) for one in rows]), strict=True):
                shown[one.place] = self._kept(one, self._why(one, last=last), part, short=self._is_clipped(one))
        return shown, supplied

    def _why(self, row: StoredMessage, *, last: bool) -> str:
        window, mark = self.window, self._mark()
        pin = next((pin for pin in window.pins if any(one.place == row.place for one in pin.rows)), None)
        if last:
            why = "last group"
        elif pin is not None and pin.kind == "pin":
            why = "pinned"
        elif window.cut is not None and window.cut.marker:
            why = f"newest: kept by {self._cut()}"
        elif mark is not None:
            why = f"newest: kept by the compaction at entry {mark.seq}" if mark.body else "newest: since the clear"
        else:
            why = "all of the history fits"
        if row.place.seq <= window.plain_until and row.size.optional:
            why += "; without its thinking and memory notes"
        return why

    def _kept(self, row: StoredMessage, why: str, tokens: int, *, short: bool = False) -> ExplainedLine:
        if not short:
            return message_line("included", row, why, tokens, tokens)
        whole = max(self.to_provider_tokens(self.window.weight(row.message, row.size)), tokens)
        call = next((result.call_id for result in row.message.results()), "")
        way = f"nexus history SESSION --call {call}" if call else "nexus history SESSION"
        return message_line("truncated", row, f"{why}; shortened, the whole: {way}", tokens, whole)

    def _is_clipped(self, row: StoredMessage) -> bool:
        """Whether a result in the message is shortened: tokens may also be gone because images are notes."""
        return row.place in self.window.tokens_cut and self.window.image_notes.get(row.place, True)

    def _noted(self, row: StoredMessage) -> Iterator[ExplainedLine]:
        """The images of a message that is shown with notes in their places."""
        if row.place not in self.window.image_notes:
            return
        call = next((f" --call {result.call_id}" for result in row.message.results()), "")
        why = f"{self._cut()}: of an older turn, a note stands in its place; `nexus history SESSION{call} --images FOLDER`"
        for image in images_of(row.message):
            whole = self.to_provider_tokens(self.window.images.tokens(image))
            name = f"{image.media_type} {image.width}x{image.height}" if image.width else image.media_type
            yield ExplainedLine("omitted", "image", "history", name, why, 0, whole, place=row.place)

    def _dropped(self, row: StoredMessage) -> ExplainedLine:
        """A message that the repair leaves out of what is shown."""
        parts = row.message.parts
        why = "nothing in it to show"
        if any(row.message.results()):
            why = "a result without a call, or a second one for it: no provider accepts that"
        elif parts and all(isinstance(part, Thinking) for part in parts):
            why = "thinking alone"
        return message_line("not applicable", row, why, 0, self.to_provider_tokens(row.size.on(self.window.wire)))

    def _hidden(self, row: StoredMessage) -> ExplainedLine:
        """A message before what is shown: summarised, cleared away, or left out by a cut."""
        window, mark = self.window, self._mark()
        whole = self.to_provider_tokens(window.weight(row.message, row.size))
        if row.place in self.ctx.provenance.covered_by_blocks:
            return message_line("included", row, "as text in the shared memory", 0, 0)
        one_turn = self.ctx.provenance.manifest.form in ONE_TURN
        if mark is not None and mark.body and _covered(mark, row.place):
            if window.summary_tokens or one_turn:
                return message_line("summarized", row, f"by the compaction at entry {mark.seq}", 0, whole)
            return message_line(
                "omitted", row, f"{self._cut()} left out the summary (compaction at entry {mark.seq})", 0, whole
            )
        cleared = next((one.seq for one in self.marks if one.kind == "clear" and one.seq > row.place.seq), 0)
        if cleared:
            return message_line("not applicable", row, f"cleared at entry {cleared}", 0, whole)
        if mark is not None and row.place < visible_start(mark):
            return message_line(
                "not applicable", row, f"before what the compaction at entry {mark.seq} covers", 0, whole
            )
        cut = window.cut
        if one_turn and (cut is None or cut.asked is None or row.place < cut.asked):
            return message_line("omitted", row, self._not_told(row), 0, whole)
        return message_line("omitted", row, f"{self._cut()}: over the budget", 0, whole)

    def _not_told(self, row: StoredMessage) -> str:
        """Why a message before the turn is not among those that a block tells of."""
        if row.message.role in ("tool", "system"):
            return f"the shared memory tells of no {row.message.role} messages"
        return f"older than the newest {self.ctx.provenance.manifest.entries} entries of the shared memory, or nothing in it to tell"

    def _mark(self) -> Entry | None:
        """The compaction or clear that holds."""
        seq = self.ctx.provenance.manifest.mark
        return next((mark for mark in self.marks if mark.seq == seq), None)

    def _cut(self) -> str:
        cut = self.window.cut
        assert cut is not None  # nothing is out without a cut
        return f"cut {cut.number}{' (made by this call)' if self.ctx.cut else ''}"

    def _closing(self) -> Iterator[ExplainedLine]:
        """Results that the last group lacks and that are supplied before a user speaks."""
        *_, conversation = self._ledger_items()
        sizes = [after - before for before, after in zip(self.window.sums, self.window.sums[1:], strict=False)]
        left = share(conversation, [*sizes, self.fitted.closing_tokens])[-1]
        lacking = self.fitted.visible[: self.fitted.closing_count]
        for message, tokens in zip(lacking, share(left, [1] * len(lacking)) if lacking else [], strict=True):
            yield supplied_line(message, tokens)


def _leads(row: StoredMessage) -> bool:
    """Whether a message of the first entry is an instruction, which stands in the system slot."""
    return row.place.seq == 1 and row.message.role == "system"


def _is_short(pin: Pinned, row: StoredMessage) -> bool:
    return bool(pin.limit) and row.size.tokens > pin.limit + FRAME_TOKENS


def _covered(mark: Entry, place: MessageRef) -> bool:
    """Whether a compaction's summary stands for a message."""
    from_seq, to_seq, kept = int(mark.body["covers_from"]), int(mark.body["covers_to"]), visible_start(mark)
    return from_seq <= place.seq and place < kept and (place.seq <= to_seq or place.seq == kept.seq)


def _is_supplied(window: Window, index: int) -> bool:
    """Whether a shown message is none of the ledger's: a result that a call lacked, or what opens a conversation."""
    message, stored = window.messages[index], window.rows[window.shown_by[index]].message
    if message.role == "tool":
        return is_synthetic_result(message) and not any(map(is_interruption, stored.results()))
    return message.role == "user" and stored.role == "assistant"


def _joined(window: Window, own: Mapping[int, list[int]]) -> Iterator[tuple[int, list[int]]]:
    """Each row with those that were joined to it as later pieces of one assistant message."""
    pieces: dict[int, list[int]] = {}
    base = -1
    for index, row in enumerate(window.rows):
        message = row.message
        if index in own:
            base = index if message.role == "assistant" else -1
        elif base >= 0 and message.id and message.id == window.rows[base].message.id and _says(message):
            pieces[base].append(index)
            continue
        pieces[index] = []
    yield from pieces.items()


def _says(message: Message) -> bool:
    return message.role == "assistant" and any(
        isinstance(part, (ToolCall, ToolResult)) or (isinstance(part, Text) and part.text.strip())
        for part in message.parts
    )

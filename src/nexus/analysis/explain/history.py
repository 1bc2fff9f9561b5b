"""The messages of a context's history: included, truncated, summarized, cleared or omitted, with reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nexus.analysis.explain.lines import EXCERPT_CHARS, ExplainedLine, message_line, one_line, share, supplied_line
from nexus.assembly.fit.cut import FitResult
from nexus.assembly.fit.pins import FRAME_TOKENS, Pinned
from nexus.assembly.fit.repair import is_interruption, is_synthetic_result
from nexus.assembly.fit.truncate import images_of
from nexus.assembly.fit.window import Window
from nexus.assembly.token_report import to_provider_tokens
from nexus.context import AssembledContext
from nexus.ledger.replay import visible_start
from nexus.types.ledger_entries import Entry, MessageRef, StoredMessage
from nexus.types.message import Message, Text, Thinking, ToolCall, ToolResult

_PIN_REASONS = {
    "pin": "pinned",
    "task": "first task",
    "asked": "the request that the kept messages answer",
}


@dataclass(frozen=True, slots=True)
class HistoryExplainer:
    """Explains a context's window message by message."""

    ctx: AssembledContext
    fitted: FitResult
    marks: Sequence[Entry]
    """The path's checkpoints up to the call, newest first."""

    @property
    def window(self) -> Window:
        """The visible history."""
        return self.fitted.window

    def to_provider_tokens(self, base: int) -> int:
        """Convert base tokens to the provider's."""
        return to_provider_tokens(base, self.ctx.provenance.manifest.factor)

    def lines(self, entries: Iterable[Entry]) -> Iterator[ExplainedLine]:
        """Yield the path's messages in order; summary and omission notice precede the first visible message."""
        visible, supplied = self._visible_lines()
        opening, summary, marker = self._opening_lines()
        yield from self._session_start_lines()
        leading = True
        before_visible = True
        for entry in entries:
            for row in entry.rows:
                leading = leading and _is_session_instruction(row)
                if before_visible and row.ref >= self.window.first:
                    yield from (*summary, *marker)
                    before_visible = False
                if leading:
                    yield message_line("included", row, "session instructions: a block of the system slot", 0, 0)
                elif row.ref in opening:
                    yield opening[row.ref]
                    yield from self._omitted_images(row)
                elif row.ref >= self.window.first:
                    yield from supplied.get(row.ref, ())
                    yield visible[row.ref]
                    yield from self._omitted_images(row)
                else:
                    yield self._hidden_line(row)
        if before_visible:
            yield from (*summary, *marker)
        yield from self._closing_lines()

    def _history_tokens(self) -> tuple[int, int, int]:
        """Return the breakdown's tokens of the opening without pins, of pins, and of the conversation."""
        *opening, conversation = [
            line.tokens
            for line in self.ctx.accounting.token_breakdown
            if line.slot == "history" and line.source == "nexus:ledger"
        ]
        without_pins, pins = [*opening, 0, 0][:2]
        return without_pins, pins, conversation

    def _opening_lines(self) -> tuple[dict[MessageRef, ExplainedLine], list[ExplainedLine], list[ExplainedLine]]:
        """Return leading and pinned messages before the visible ones, the summary, and the omission notice."""
        window, opening = self.window, self.window.opening
        opening_tokens, pinned_tokens, _ = self._history_tokens()
        lead = [row for row in opening.lead if not _is_session_instruction(row)]
        weights = share(opening.lead_tokens, [window.weight(row.message, row.size) for row in lead]) if lead else []
        other_tokens = opening.pinned_tokens + opening.summary_tokens + opening.lead_tokens + opening.header_tokens
        marker_base = opening.tokens - other_tokens
        summary_tokens, marker_tokens, *lead_tokens = share(
            opening_tokens, [opening.summary_tokens, marker_base, *weights]
        )
        lines = {
            row.ref: self._included_line(row, "head: kept before the omitted messages", tokens)
            for row, tokens in zip(lead, lead_tokens, strict=True)
        }
        hidden = [(pin, row) for pin in window.hidden_pins() for row in pin.rows]
        sizes = [
            pin.limit + FRAME_TOKENS if _exceeds_limit(pin, row) else window.weight(row.message, row.size)
            for pin, row in hidden
        ]
        for (pin, row), tokens in zip(hidden, share(pinned_tokens, sizes) if hidden else [], strict=True):
            truncated = _exceeds_limit(pin, row) or self._is_truncated(row)
            lines[row.ref] = self._included_line(row, _PIN_REASONS[pin.kind], tokens, truncated=truncated)
        return lines, self._summary_lines(summary_tokens), self._marker_lines(marker_tokens)

    def _session_start_lines(self) -> Iterator[ExplainedLine]:
        """Yield the message on the session's start, which is not in the ledger."""
        for line in self.ctx.accounting.token_breakdown:
            if line.source == "nexus:session-start":
                reason = "the first message: never cut or summarized"
                text = self.window.rules.header.started
                yield ExplainedLine(
                    "included", "marker", "history", line.name, reason, line.tokens, line.tokens, text=text
                )

    def _summary_lines(self, tokens: int) -> list[ExplainedLine]:
        mark = self._checkpoint()
        if mark is None or not self.window.opening.summary_tokens:
            return []
        covered = f"covers entries {mark.body.get('covers_from')} to {mark.body.get('covers_to')}"
        reason = f"{covered}: compaction at entry {mark.seq}"
        text = one_line(str(mark.body.get("summary", "")))
        return [ExplainedLine("included", "summary", "history", "summary", reason, tokens, tokens, text=text)]

    def _marker_lines(self, tokens: int) -> list[ExplainedLine]:
        cut = self.window.cut
        if cut is None or not cut.omission_notice:
            return []
        reason = f"{self._cut_name()} omitted {cut.omitted_messages:,} messages before the following ones"
        text = cut.omission_notice[:EXCERPT_CHARS]
        return [ExplainedLine("included", "marker", "history", "marker", reason, tokens, tokens, text=text)]

    def _visible_lines(self) -> tuple[dict[MessageRef, ExplainedLine], dict[MessageRef, list[ExplainedLine]]]:
        """Return the rows from the window's first on, and the synthetic messages before some of them."""
        window = self.window
        message_tokens = self._message_tokens()
        indices: dict[int, list[int]] = {}
        supplied: dict[MessageRef, list[ExplainedLine]] = {}
        for index, row in enumerate(window.shown_by):
            if _is_supplied(window, index):
                line = supplied_line(window.messages[index], message_tokens[index])
                supplied.setdefault(window.rows[row].ref, []).append(line)
            else:
                indices.setdefault(row, []).append(index)
        visible: dict[MessageRef, ExplainedLine] = {}
        for row_index, pieces in _joined_rows(window, indices):
            rows = [window.rows[index] for index in (row_index, *pieces)]
            if row_index not in indices:
                visible[rows[0].ref] = self._dropped_line(rows[0])
                continue
            tokens = sum(message_tokens[index] for index in indices[row_index])
            last = bool(window.groups) and indices[row_index][-1] >= window.groups[-1]
            for row, row_tokens in zip(
                rows, share(tokens, [row.size.on(window.rules.wire) for row in rows]), strict=True
            ):
                reason = self._inclusion_reason(row, last=last)
                visible[row.ref] = self._included_line(row, reason, row_tokens, truncated=self._is_truncated(row))
        return visible, supplied

    def _message_tokens(self) -> list[int]:
        """Return the provider tokens of each message of the window, and of the closing results together."""
        sums = self.window.sums
        sizes = [after - before for before, after in pairwise(sums)]
        return share(self._history_tokens()[2], [*sizes, self.fitted.closing_tokens])

    def _inclusion_reason(self, row: StoredMessage, *, last: bool) -> str:
        window, mark = self.window, self._checkpoint()
        pin = next((pin for pin in window.opening.pins if any(pinned.ref == row.ref for pinned in pin.rows)), None)
        if last:
            reason = "last group"
        elif pin is not None and pin.kind == "pin":
            reason = "pinned"
        elif window.cut is not None and window.cut.omission_notice:
            reason = f"newest: kept by {self._cut_name()}"
        elif mark is not None:
            reason = f"newest: kept by the compaction at entry {mark.seq}" if mark.body else "newest: since the clear"
        else:
            reason = "all of the history fits"
        if row.ref.seq <= window.rules.plain_until and row.size.optional:
            reason += "; without its thinking and memory notes"
        return reason

    def _included_line(self, row: StoredMessage, reason: str, tokens: int, *, truncated: bool = False) -> ExplainedLine:
        if not truncated:
            return message_line("included", row, reason, tokens, tokens)
        full_tokens = max(self.to_provider_tokens(self.window.weight(row.message, row.size)), tokens)
        command = f"nexus history SESSION{_call_option(row)}"
        return message_line("truncated", row, f"{reason}; truncated (all of it: {command})", tokens, full_tokens)

    def _is_truncated(self, row: StoredMessage) -> bool:
        """Return whether a result in the message is truncated; without it, placeholders for images saved the tokens."""
        reductions = self.window.reductions
        return row.ref in reductions.tokens_cut and reductions.image_notes.get(row.ref, True)

    def _omitted_images(self, row: StoredMessage) -> Iterator[ExplainedLine]:
        """Yield the images of a message that are replaced by placeholders."""
        if row.ref not in self.window.reductions.image_notes:
            return
        command = f"nexus history SESSION{_call_option(row)} --images FOLDER"
        reason = f"{self._cut_name()}: replaced by a placeholder, as it belongs to an older turn (view it: {command})"
        for image in images_of(row.message):
            tokens = self.to_provider_tokens(self.window.rules.images.tokens(image))
            name = f"{image.media_type} {image.width}x{image.height}" if image.width else image.media_type
            yield ExplainedLine("omitted", "image", "history", name, reason, 0, tokens, place=row.ref)

    def _dropped_line(self, row: StoredMessage) -> ExplainedLine:
        """Return the line of a message that the repair omits."""
        parts = row.message.parts
        reason = "empty"
        if any(row.message.results()):
            reason = "a result without a call, or a second result: rejected by every provider"
        elif parts and all(isinstance(part, Thinking) for part in parts):
            reason = "thinking only"
        return message_line(
            "not applicable", row, reason, 0, self.to_provider_tokens(row.size.on(self.window.rules.wire))
        )

    def _hidden_line(self, row: StoredMessage) -> ExplainedLine:
        """Return the line of a message before the visible ones: summarized, cleared, or omitted by a cut."""
        window, mark = self.window, self._checkpoint()
        tokens = self.to_provider_tokens(window.weight(row.message, row.size))
        if row.ref in self.ctx.provenance.covered_by_blocks:
            return message_line("included", row, "as text in the shared memory", 0, 0)
        one_turn = self.ctx.provenance.shows_one_turn
        if mark is not None and mark.body and _is_summarized(mark, row.ref):
            if window.opening.summary_tokens or one_turn:
                return message_line("summarized", row, f"by the compaction at entry {mark.seq}", 0, tokens)
            reason = f"{self._cut_name()} omitted the summary (compaction at entry {mark.seq})"
            return message_line("omitted", row, reason, 0, tokens)
        clear = next((other.seq for other in self.marks if other.kind == "clear" and other.seq > row.ref.seq), 0)
        if clear:
            return message_line("not applicable", row, f"cleared at entry {clear}", 0, tokens)
        if mark is not None and row.ref < visible_start(mark):
            reason = f"before the messages that the compaction at entry {mark.seq} covers"
            return message_line("not applicable", row, reason, 0, tokens)
        cut = window.cut
        if one_turn and (cut is None or cut.pending_request_ref is None or row.ref < cut.pending_request_ref):
            if row.message.role in ("tool", "system"):
                reason = f"the shared memory contains no {row.message.role} messages"
            else:
                count = self.ctx.provenance.manifest.entries
                reason = f"empty, or older than the newest {count} entries of the shared memory"
            return message_line("omitted", row, reason, 0, tokens)
        return message_line("omitted", row, f"{self._cut_name()}: over the budget", 0, tokens)

    def _checkpoint(self) -> Entry | None:
        """Return the compaction or clear in force."""
        seq = self.ctx.provenance.manifest.mark
        return next((mark for mark in self.marks if mark.seq == seq), None)

    def _cut_name(self) -> str:
        cut = self.window.cut
        assert cut is not None  # messages are omitted only by a cut
        return f"cut {cut.number}{' (made by this call)' if self.ctx.cut else ''}"

    def _closing_lines(self) -> Iterator[ExplainedLine]:
        """Yield the results that are supplied for the last group's unanswered calls before a user message."""
        results = self.fitted.visible[: self.fitted.closing_count]
        tokens = share(self._message_tokens()[-1], [1] * len(results)) if results else []
        yield from map(supplied_line, results, tokens)


def _call_option(row: StoredMessage) -> str:
    """Return the option of `nexus history` that selects a message's first result; empty without results."""
    return next((f" --call {result.call_id}" for result in row.message.results() if result.call_id), "")


def _is_session_instruction(row: StoredMessage) -> bool:
    """Return whether a message is a system message of the first entry, which moves to the system slot."""
    return row.ref.seq == 1 and row.message.role == "system"


def _exceeds_limit(pin: Pinned, row: StoredMessage) -> bool:
    return bool(pin.limit) and row.size.tokens > pin.limit + FRAME_TOKENS


def _is_summarized(mark: Entry, place: MessageRef) -> bool:
    """Return whether a compaction's summary covers a message."""
    from_seq, to_seq, start = int(mark.body["covers_from"]), int(mark.body["covers_to"]), visible_start(mark)
    return from_seq <= place.seq and place < start and (place.seq <= to_seq or place.seq == start.seq)


def _is_supplied(window: Window, index: int) -> bool:
    """Return whether a visible message is synthetic: a missing result, or a leading user message."""
    message, stored = window.messages[index], window.rows[window.shown_by[index]].message
    if message.role == "tool":
        return is_synthetic_result(message) and not any(map(is_interruption, stored.results()))
    return message.role == "user" and stored.role == "assistant"


def _joined_rows(window: Window, indices: Mapping[int, list[int]]) -> Iterator[tuple[int, list[int]]]:
    """Yield each row with the rows joined to it as later pieces of one assistant message."""
    pieces: dict[int, list[int]] = {}
    base = -1
    for index, row in enumerate(window.rows):
        message = row.message
        if index in indices:
            base = index if message.role == "assistant" else -1
        elif base >= 0 and message.id and message.id == window.rows[base].message.id and _has_content(message):
            pieces[base].append(index)
            continue
        pieces[index] = []
    yield from pieces.items()


def _has_content(message: Message) -> bool:
    return message.role == "assistant" and any(
        isinstance(part, (ToolCall, ToolResult)) or (isinstance(part, Text) and part.text.strip())
        for part in message.parts
    )

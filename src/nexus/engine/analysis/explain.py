"""Explanation of a call: each block, tool and message that it could have contained, listed once with its state. Pure.

The tokens of the lines add up to the context's token breakdown, line by line, and so to the used tokens of its budget.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.assembly.fit.call_names import safe_id
from nexus.assembly.fit.repair import LATE_SOURCE
from nexus.assembly.fit.result import FitResult
from nexus.assembly.fit.truncate_results import images_of
from nexus.assembly.fit.window import Window
from nexus.assembly.sent_messages import is_supplied
from nexus.assembly.token_report import to_provider_tokens
from nexus.context import AssembledContext, TokenLine
from nexus.ledger.replay import visible_start
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import message_tokens, tools_tokens
from nexus.types.block import PREAMBLE, Block, slot_name
from nexus.types.ledger_entries import Entry, MessageRef, StoredMessage
from nexus.types.message import Image, Message, Text, Thinking, ToolCall, ToolResult
from nexus.types.tool_definition import canonical

State: TypeAlias = Literal["included", "truncated", "summarized", "omitted", "not applicable"]
Kind: TypeAlias = Literal["block", "framing", "tool", "summary", "marker", "message", "image", "supplied", "event"]

EXCERPT_CHARS = 120
"""Maximum length of a line's text."""

_PIN_REASONS = {
    "pin": "pinned",
    "task": "first task",
    "asked": "the request that the kept messages answer",
    "instruction": "instruction or tools in the client's list",
    "excerpt": "excerpt",
    "digest": "digest of earlier tool calls",
}


class ExplainedLine(Struct, frozen=True, omit_defaults=True):
    """One block, tool, message or image of a call, and its state."""

    state: State
    kind: Kind
    slot: str
    name: str
    reason: str
    tokens: int
    """Provider tokens in this call."""
    full_tokens: int
    """Provider tokens without truncation."""
    place: MessageRef | None = None
    """Reference of a message in the ledger."""
    source: str = ""
    """Source of a block."""
    text: str = ""
    """Beginning of the text."""


class Explanation(Struct, frozen=True):
    """A call explained. The lines are in the order of system slot, tools, history and message."""

    session: str
    call: str
    """The call's name in messages."""
    model: str
    provider: str
    available: int
    used: int
    """Sum of the lines' tokens."""
    lines: tuple[ExplainedLine, ...]
    warnings: tuple[str, ...] = ()

    def tokens(self, state: State) -> int:
        """Return the tokens of everything in a state without truncation."""
        return sum(line.full_tokens for line in self.lines if line.state == state)


def explain(
    ctx: AssembledContext,
    fitted: FitResult,
    entries: Iterable[Entry],
    marks: Sequence[Entry],
    counter: TokenCounter,
    call: str,
) -> Explanation:
    """Explain a context.

    Args:
        ctx: The context.
        fitted: The result of fitting it, with the visible window.
        entries: The path's entries up to the window's head.
        marks: The checkpoints among them, newest first.
        counter: Counts the text of omitted blocks.
        call: The call's name in messages.
    """
    history = _HistoryExplainer(ctx, fitted, marks).lines(entries)
    lines = (*_prompt_lines(ctx, counter), *history, *_current_lines(ctx, fitted, counter))
    warnings = tuple(f"{warning.source}: {warning.message}" for warning in ctx.warnings)
    budget = ctx.token_budget
    return Explanation(
        ctx.session_label, call, ctx.model, ctx.provider, budget.available, budget.used.total, lines, warnings
    )


def _prompt_lines(ctx: AssembledContext, counter: TokenCounter) -> Iterator[ExplainedLine]:
    """Yield the system slot, the request's framing, offered and denied tools, and messages before the conversation."""
    blocks = {(block.source, block.name): block for block in ctx.provenance.blocks}
    for line in _token_lines(ctx, "system"):
        block = blocks.get((line.source, line.name))
        if line.source == "nexus:tools":
            sizes = [tools_tokens([tool.counted()], counter) for tool in ctx.tools]
            for tool, tokens in zip(ctx.tools, share(line.tokens, sizes), strict=True):
                text = one_line(tool.description)
                yield ExplainedLine(
                    "included", "tool", "system", tool.name, "offered", tokens, tokens, source=line.source, text=text
                )
        elif block is None:
            yield _prompt_line(line, "framing of the request")
        elif block.omitted_chars:
            yield _prompt_line(line, f"{block.omitted_chars:,} characters over the size cap", block, "truncated")
        else:
            yield _prompt_line(line, "sent with every call", block)
    for tool in ctx.provenance.denied_tools:
        specs = canonical([tool.definition])
        base = tools_tokens([spec.counted() for spec in specs], counter)
        tokens = to_provider_tokens(base, ctx.provenance.manifest.factor)
        text = one_line(" ".join(spec.description for spec in specs))
        yield ExplainedLine(
            "omitted", "tool", "system", tool.name, tool.reason, 0, tokens, source="nexus:policy", text=text
        )
    preamble = {(block.source, block.name): block for block in ctx.provenance.blocks if block.slot == PREAMBLE}
    for line in _token_lines(ctx, PREAMBLE):
        block = preamble.get((line.source, line.name))
        reason = "framing of the messages before the conversation"
        if block:
            reason = "a message before the conversation"
        yield _prompt_line(line, reason, block)


def _prompt_line(line: TokenLine, reason: str, block: Block | None = None, state: State = "included") -> ExplainedLine:
    """Return the line of a block, with the tokens of its line in the token breakdown; of framing without a block."""
    kind, text = ("block", one_line(block.text)) if block else ("framing", "")
    slot = slot_name(line.slot)
    return ExplainedLine(state, kind, slot, line.name, reason, line.tokens, line.tokens, source=line.source, text=text)


def _current_lines(ctx: AssembledContext, fitted: FitResult, counter: TokenCounter) -> Iterator[ExplainedLine]:
    """Yield the blocks of the current message, its repeated and omitted blocks, and the event."""
    factor = ctx.provenance.manifest.factor
    for block in ctx.provenance.already_in_history:
        reason = "already in the history, not repeated"
        yield ExplainedLine("included", "block", "current", block.name, reason, 0, 0, source=block.source)
    for block in ctx.provenance.omitted_blocks:
        tokens = to_provider_tokens(counter.count(block.text), factor)
        reason = "no room next to the parts that are never cut"
        yield ExplainedLine("omitted", "block", "current", block.name, reason, 0, tokens, source=block.source)
    *block_lines, event_line = _token_lines(ctx, "current")
    blocks = {(block.source, block.name): block for block in ctx.provenance.blocks}
    for line in block_lines:
        yield _prompt_line(line, "chosen for this message", blocks[line.source, line.name])
    visible = fitted.visible[fitted.closing_count :]
    window = fitted.window
    sizes = [window.rules.weight(message, message_tokens(message, counter)) for message in visible]
    if len(fitted.event) == len(visible):
        originals = fitted.event
    else:
        originals = visible
    for message, original, tokens in zip(visible, originals, share(event_line.tokens, sizes), strict=True):
        full_tokens = to_provider_tokens(window.rules.weight(original, message_tokens(original, counter)), factor)
        is_truncated = message.parts != original.parts and full_tokens > tokens
        state: State = "truncated" if is_truncated else "included"
        reason = "the event"
        if is_truncated:
            reason = "the event, truncated (the ledger will contain all of it)"
        if not is_truncated:
            full_tokens = tokens
        yield ExplainedLine(state, "event", "current", message.role, reason, tokens, full_tokens, text=excerpt(message))


def _token_lines(ctx: AssembledContext, slot: str) -> list[TokenLine]:
    return [line for line in ctx.accounting.token_breakdown if line.slot == slot]


@dataclass(frozen=True, slots=True)
class _HistoryExplainer:
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
        opening, notices = self._opening_lines()
        for line in self.ctx.accounting.token_breakdown:
            # The message on the session's start is not in the ledger.
            if line.source == "nexus:session-start":
                reason = "the first message: never cut or summarized"
                text = self.window.rules.header.started
                yield ExplainedLine(
                    "included", "marker", "history", line.name, reason, line.tokens, line.tokens, text=text
                )
        leading = True
        for row in (row for entry in entries for row in entry.rows):
            leading = leading and _is_session_instruction(row)
            if row.ref >= self.window.first:
                yield from notices
                notices = []
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
        yield from notices
        # Results that are supplied for the last group's unanswered calls before a user message.
        closing = self.fitted.visible[: self.fitted.closing_count]
        yield from map(supplied_line, closing, share(self._message_tokens()[-1], [1] * len(closing)) if closing else [])

    def _history_tokens(self) -> tuple[int, int, int]:
        """Return the breakdown's tokens of the opening without pins, of pins, and of the conversation."""
        *opening, conversation = [
            line.tokens
            for line in self.ctx.accounting.token_breakdown
            if line.slot == "history" and line.source == "nexus:ledger"
        ]
        without_pins, pins = [*opening, 0, 0][:2]
        return without_pins, pins, conversation

    def _opening_lines(self) -> tuple[dict[MessageRef, ExplainedLine], list[ExplainedLine]]:
        """Return leading and pinned messages before the visible ones, and the summary and the omission notice."""
        window = self.window
        opening = self.window.opening
        opening_tokens, pinned_tokens, _ = self._history_tokens()
        lead = [row for row in opening.lead if not _is_session_instruction(row)]
        weights = (
            share(opening.lead_tokens, [window.rules.weight(row.message, row.size) for row in lead]) if lead else []
        )
        other_tokens = opening.pinned_tokens + opening.summary_tokens + opening.lead_tokens + opening.header_tokens
        summary_tokens, marker_tokens, *lead_tokens = share(
            opening_tokens, [opening.summary_tokens, opening.tokens - other_tokens, *weights]
        )
        lines = {
            row.ref: self._included_line(row, "head: kept before the omitted messages", tokens)
            for row, tokens in zip(lead, lead_tokens, strict=True)
        }
        hidden = [(pin, row) for pin in window.hidden_pins() for row in pin.rows]
        # A pin over its limit is shown truncated, in a frame of its own.
        over = [bool(pin.limit) and row.size.tokens > pin.limit + pin.frame for pin, row in hidden]
        sizes = [
            pin.limit + pin.frame if is_over else window.rules.weight(row.message, row.size)
            for (pin, row), is_over in zip(hidden, over, strict=True)
        ]
        pin_tokens = share(pinned_tokens, sizes) if hidden else []
        for (pin, row), is_over, tokens in zip(hidden, over, pin_tokens, strict=True):
            truncated = is_over or self._is_truncated(row)
            lines[row.ref] = self._included_line(row, _PIN_REASONS[pin.kind], tokens, truncated=truncated)
        notices: list[ExplainedLine] = []
        if pinned_tokens and not hidden:
            reason = f"{opening.unshown_turns:,} user turns are not shown"
            notices.append(_notice_line("marker", reason, pinned_tokens, reason))
        notices += self._opening_notices(summary_tokens, marker_tokens)
        return lines, notices

    def _opening_notices(self, summary_tokens: int, marker_tokens: int) -> list[ExplainedLine]:
        """Return the lines of the summary and of the omission notice."""
        mark = self._checkpoint()
        cut = self.window.cut
        notices: list[ExplainedLine] = []
        if mark is not None and self.window.opening.summary_tokens:
            covered = f"covers entries {mark.body.get('covers_from')} to {mark.body.get('covers_to')}"
            reason = f"{covered}: compaction at entry {mark.seq}"
            text = one_line(str(mark.body.get("summary", "")))
            notices.append(_notice_line("summary", reason, summary_tokens, text))
        if cut is not None and cut.omission_notice:
            reason = f"{self._cut_name()} omitted {cut.omitted_messages:,} messages before the following ones"
            notices.append(_notice_line("marker", reason, marker_tokens, cut.omission_notice[:EXCERPT_CHARS]))
        return notices

    def _visible_lines(self) -> tuple[dict[MessageRef, ExplainedLine], dict[MessageRef, list[ExplainedLine]]]:
        """Return the rows from the window's first on, and the synthetic messages before some of them."""
        window = self.window
        message_tokens = self._message_tokens()
        indices: dict[int, list[int]] = {}
        supplied: dict[MessageRef, list[ExplainedLine]] = {}
        for index, row in enumerate(window.indexes.shown_by):
            if is_supplied(window, index):
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
            last = bool(window.indexes.groups) and indices[row_index][-1] >= window.indexes.groups[-1]
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
        window = self.window
        mark = self._checkpoint()
        pin = next((pin for pin in window.opening.pins if any(pinned.ref == row.ref for pinned in pin.rows)), None)
        if last:
            reason = "last group"
        elif pin is not None and pin.kind == "pin":
            reason = "pinned"
        elif window.cut is not None and window.cut.omission_notice:
            reason = f"newest: kept by {self._cut_name()}"
        elif mark is not None:
            reason = "newest: since the clear"
            if mark.body:
                reason = f"newest: kept by the compaction at entry {mark.seq}"
        else:
            reason = "all of the history fits"
        if row.ref.seq <= window.rules.plain_until and row.size.optional:
            reason += "; without its thinking and memory notes"
        return reason

    def _included_line(self, row: StoredMessage, reason: str, tokens: int, *, truncated: bool = False) -> ExplainedLine:
        if not truncated:
            return message_line("included", row, reason, tokens, tokens)
        full_tokens = max(self.to_provider_tokens(self.window.rules.weight(row.message, row.size)), tokens)
        reason = f"{reason}; truncated (all of it: {self._history_command(row)})"
        return message_line("truncated", row, reason, tokens, full_tokens)

    def _is_truncated(self, row: StoredMessage) -> bool:
        """Return whether a result in the message is truncated; without it, placeholders for images saved the tokens."""
        reductions = self.window.reductions
        return row.ref in reductions.tokens_cut and reductions.image_notes.get(row.ref, True)

    def _omitted_images(self, row: StoredMessage) -> Iterator[ExplainedLine]:
        """Yield the images of a message that are replaced by placeholders."""
        if row.ref not in self.window.reductions.image_notes:
            return
        command = f"{self._history_command(row)} --images FOLDER"
        reason = f"{self._cut_name()}: replaced by a placeholder, as it belongs to an older turn (view it: {command})"
        for image in images_of(row.message):
            tokens = self.to_provider_tokens(self.window.rules.images.tokens(image))
            if image.width:
                name = f"{image.media_type} {image.width}x{image.height}"
            else:
                name = image.media_type
            yield ExplainedLine("omitted", "image", "history", name, reason, 0, tokens, place=row.ref)

    def _dropped_line(self, row: StoredMessage) -> ExplainedLine:
        """Return the line of a message that the repair omits."""
        if self._is_late_text(row):
            return message_line("included", row, "late result: as text, after the results of open calls", 0, 0)
        reason = "empty"
        if any(row.message.results()):
            reason = "a result without a call, or a second result: rejected by every provider"
        elif row.message.parts and all(isinstance(part, Thinking) for part in row.message.parts):
            reason = "thinking only"
        size = row.size.on(self.window.rules.wire)
        return message_line("not applicable", row, reason, 0, self.to_provider_tokens(size))

    def _is_late_text(self, row: StoredMessage) -> bool:
        """Return True if a later message shows the row's results as text."""
        late_text = "\n".join(message.text() for message in self.window.messages if message.source == LATE_SOURCE)
        ids = [f" ({safe_id(result.call_id)}): it came" for result in row.message.results()]
        return bool(ids) and all(call_id in late_text for call_id in ids)

    def _hidden_line(self, row: StoredMessage) -> ExplainedLine:
        """Return the line of a message before the visible ones: summarized, cleared, or omitted by a cut."""
        window = self.window
        mark = self._checkpoint()
        memory = self.ctx.provenance.memory
        tokens = self.to_provider_tokens(window.rules.weight(row.message, row.size))
        if memory is not None and row.ref in self.ctx.provenance.covered_by_blocks:
            return message_line("included", row, f"as text in the {memory.name}", 0, 0)
        if mark is not None and mark.body:
            start = visible_start(mark)
            last = int(mark.body["covers_to"])
            # The first kept message may be inside an entry: rows before it in the same entry are covered too.
            covered = row.ref.seq <= last or row.ref.seq == start.seq
            if int(mark.body["covers_from"]) <= row.ref.seq and row.ref < start and covered:
                if window.opening.summary_tokens or memory is not None:
                    return message_line("summarized", row, f"by the compaction at entry {mark.seq}", 0, tokens)
                reason = f"{self._cut_name()} omitted the summary (compaction at entry {mark.seq})"
                return message_line("omitted", row, reason, 0, tokens)
        clear = next((other.seq for other in self.marks if other.kind == "clear" and other.seq > row.ref.seq), 0)
        if clear:
            return message_line("not applicable", row, f"cleared at entry {clear}", 0, tokens)
        if mark is not None and row.ref < visible_start(mark):
            reason = f"before the messages that the compaction at entry {mark.seq} covers"
            return message_line("not applicable", row, reason, 0, tokens)
        return message_line("omitted", row, self._reason_to_omit(row), 0, tokens)

    def _reason_to_omit(self, row: StoredMessage) -> str:
        """Return why a message is neither shown, nor summarized, nor cleared."""
        cut = self.window.cut
        memory = self.ctx.provenance.memory
        is_earlier_turn = cut is None or cut.pending_request_ref is None or row.ref < cut.pending_request_ref
        if memory is None or not is_earlier_turn:
            return f"{self._cut_name()}: over the budget"
        if row.message.role in ("tool", "system"):
            return f"the {memory.name} contains no {row.message.role} messages"
        count = self.ctx.provenance.manifest.entries
        return f"empty, or older than the newest {count} entries of the {memory.name}"

    def _checkpoint(self) -> Entry | None:
        """Return the compaction or clear in force."""
        seq = self.ctx.provenance.manifest.mark
        return next((mark for mark in self.marks if mark.seq == seq), None)

    def _history_command(self, row: StoredMessage) -> str:
        """Return the command that shows a message's first result in full, or without results the session."""
        call = next((f" --call {result.call_id}" for result in row.message.results() if result.call_id), "")
        return f"nexus history {shlex.quote(self.ctx.session_label)}{call}"

    def _cut_name(self) -> str:
        assert self.window.cut is not None  # messages are omitted only by a cut
        return f"cut {self.window.cut.number}{' (made by this call)' if self.ctx.cut else ''}"


def _notice_line(kind: Literal["summary", "marker"], reason: str, tokens: int, text: str) -> ExplainedLine:
    return ExplainedLine("included", kind, "history", kind, reason, tokens, tokens, text=text)


def _is_session_instruction(row: StoredMessage) -> bool:
    """Return whether a message is a system message of the first entry, which moves to the system slot."""
    return row.ref.seq == 1 and row.message.role == "system"


def _joined_rows(window: Window, indices: Mapping[int, list[int]]) -> Iterator[tuple[int, list[int]]]:
    """Yield each row with the rows joined to it as later pieces of one assistant message."""
    pieces: dict[int, list[int]] = {}
    base = -1
    for index, row in enumerate(window.rows):
        message = row.message
        if index in indices:
            base = index if message.role == "assistant" else -1
        elif base >= 0 and message.role == "assistant":
            # It was joined to the one before it. A piece without text, calls and results is dropped by the repair and has a line of its own.
            parts = (part for part in message.parts if not isinstance(part, Text) or part.text.strip())
            if any(isinstance(part, (Text, ToolCall, ToolResult)) for part in parts):
                pieces[base].append(index)
                continue
        pieces[index] = []
    yield from pieces.items()


def share(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a number into whole parts in proportion to the weights, evenly if all are 0. The parts add up to it."""
    if not sum(weights):
        weights = [1] * len(weights)
    weight_sum = sum(weights)
    parts: list[int] = []
    cumulative = assigned = 0
    for weight in weights:
        cumulative += weight
        parts.append(total * cumulative // weight_sum - assigned)
        assigned += parts[-1]
    return parts


def one_line(text: str) -> str:
    """Return the beginning of a text on one line, as an excerpt."""
    return " ".join(text[: 4 * EXCERPT_CHARS].split())[:EXCERPT_CHARS]


def excerpt(message: Message) -> str:
    """Return the beginning of a message: its text, else its calls, results or images."""
    words: list[str] = []
    for part in message.parts:
        match part:
            case ToolCall(name=name):
                words.append(f"calls {name}")
            case ToolResult(content=content):
                words.extend("an image" if isinstance(item, Image) else item.text for item in content)
            case Image():
                words.append("an image")
            case Thinking():
                words.append("thinking")
            case _:
                pass
    return one_line(message.text() or ", ".join(words))


def message_line(state: State, row: StoredMessage, reason: str, tokens: int, full_tokens: int) -> ExplainedLine:
    """Return the line of a message of the ledger."""
    text = excerpt(row.message)
    role = row.message.role
    return ExplainedLine(state, "message", "history", role, reason, tokens, full_tokens, place=row.ref, text=text)


def supplied_line(message: Message, tokens: int) -> ExplainedLine:
    """Return the line of a synthetic message, which is not in the ledger."""
    reason = "supplied: the call has no result"
    if message.role != "tool":
        reason = "supplied: a conversation starts with a user message"
    return ExplainedLine("included", "supplied", "history", message.role, reason, tokens, tokens, text=excerpt(message))

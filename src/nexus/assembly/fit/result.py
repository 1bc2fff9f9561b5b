"""The result of fitting: the visible window, the event as shown, and their tokens."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from msgspec import Struct

from nexus.assembly.fit import repair
from nexus.assembly.fit.client_ids import copy_of_ids, with_client_ids
from nexus.assembly.fit.images import with_sendable_images
from nexus.assembly.fit.instructions import has_tools, is_instruction
from nexus.assembly.fit.request_images import RequestImages
from nexus.assembly.fit.truncate_results import truncate_results
from nexus.assembly.fit.window import Window, WindowCaches
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import message_tokens
from nexus.types.ledger_entries import Cut
from nexus.types.message import Message, client_call_ids


class FixedTokens(Struct, frozen=True):
    """Base tokens that are never cut, besides the current event and the last group."""

    system: int
    tools: int

    preamble: int = 0
    """Base tokens of the blocks that are messages before the conversation."""

    @property
    def total(self) -> int:
        """The sum."""
        return self.system + self.tools + self.preamble


class FitResult(Struct, frozen=True):
    """Result of fitting: visible window, trailing messages, token counts, and the cut, if any."""

    window: Window

    visible: tuple[Message, ...]
    """The messages after the window: results that the open group lacks, then the event as shown."""

    closing_count: int
    """Number of results at the start of `visible` that close an interrupted group."""

    closing_tokens: int
    current_tokens: int
    cut: Cut | None

    truncated_results: int = 0
    """Number of the event's messages with truncated results."""

    whole_tokens: int = 0
    """Base tokens of everything before a cut."""

    verbatim_indexes: tuple[int, ...] = ()
    """Indexes of the event's messages that are not truncated because they belong to a pin."""

    event: tuple[Message, ...] = ()
    """The event before truncation."""

    repairs: dict[str, int] = {}
    """Changes of the repair to `visible`, by kind."""

    images: RequestImages = RequestImages()
    """Changes because of the number of images; `visible` and the window are without them."""


def with_event(window: Window, event: tuple[Message, ...], counter: TokenCounter, cut: Cut | None) -> FitResult:
    """Return the result with the event as this window's history will show it, counted in that form."""
    window = _with_client_ids(window, event, counter)
    rules = window.rules
    changes = Counter[str]()
    event = tuple(with_sendable_images(message, rules.image_limits, changes) for message in event)
    seq = window.head + 1
    limit = rules.limits.limit(seq)
    truncated = event
    if limit:
        keeps_images = not rules.limits.aged(seq)

        def truncate(message: Message) -> Message:
            if rules.render >= 7 and message_tokens(message, counter).tokens <= limit:  # as the history will show it
                return message
            return truncate_results(
                message, limit, counter, keeps_images=keeps_images, lookup=rules.lookup, render=rules.render
            )

        truncated = tuple(map(truncate, event))
    verbatim: tuple[int, ...] = ()
    if window.pin_waits():
        verbatim = tuple(at for at in repair.with_answers(window.fold, event) if truncated[at] is not event[at])
        truncated = event
    visible, repairs = repair.preview(window.fold, truncated)
    answers = any(message.role == "tool" for message in event)
    if answers:
        closing_count = 0
    else:
        closing_count = len(repair.closing_messages(window.fold))
    sizes = [message_tokens(message, counter) for message in visible]
    tokens = [rules.weight(message, size) + size.optional for message, size in zip(visible, sizes, strict=True)]
    return FitResult(
        window,
        tuple(visible),
        closing_count,
        sum(tokens[:closing_count]),
        sum(tokens[closing_count:]),
        cut,
        sum(short is not message for short, message in zip(truncated, event, strict=True)),
        verbatim_indexes=verbatim,
        event=event,
        repairs=dict(repairs + changes),
    )


def _with_client_ids(window: Window, event: tuple[Message, ...], counter: TokenCounter) -> Window:
    """Return a window whose open calls have the ids that the event has for them; the same one if it has the stored ids."""
    ids = {stored: new_id for message in event for stored, new_id in client_call_ids(message).items()}
    if not window.fold.waiting.keys() & ids.keys():
        return window
    fold = copy_of_ids(window.fold)
    messages, sums = with_client_ids(window.messages, window.sums, fold, ids, window.rules, counter)
    caches = WindowCaches(limited_fragments=window.caches.limited_fragments)
    return replace(window, messages=messages, sums=sums, fold=fold, caches=caches)


def total_tokens(result: FitResult, fixed: FixedTokens) -> int:
    """Return the base tokens of the whole prompt."""
    return fixed.total + result.window.tokens + result.closing_tokens + result.current_tokens


def fixed_parts(result: FitResult, fixed: FixedTokens, counter: TokenCounter) -> dict[str, int]:
    """Return the base tokens of the parts that no cut omits, by name."""
    window = result.window
    opening = window.opening
    wire = window.rules.wire
    list_heads = {"tools in the list": 0, "instructions in the list": 0}

    def add_head(message: Message, tokens: int) -> None:
        if not is_instruction(message):
            return
        name = "instructions in the list"
        if has_tools(message):
            name = "tools in the list"
        list_heads[name] += tokens

    in_opening = 0
    for pin in window.hidden_pins():
        if pin.kind == "instruction":
            tokens = pin.tokens(wire, window.rules.images)
            in_opening += tokens
            add_head(pin.rows[0].message, tokens)
    for message in result.event:
        add_head(message, message_tokens(message, counter).on(wire))
    in_opening = min(in_opening, opening.pinned_tokens)
    in_event = min(sum(list_heads.values()) - in_opening, result.current_tokens)

    parts = {"system": fixed.system, "tools": fixed.tools}
    parts.update((name, tokens) for name, tokens in list_heads.items() if tokens)
    parts["current event"] = result.current_tokens - in_event
    if fixed.preamble:
        parts["blocks before the conversation"] = fixed.preamble
    parts["last group"] = window.sums[-1] + result.closing_tokens
    parts["omission notice"] = opening.tokens - opening.pinned_tokens
    if opening.pinned_tokens > in_opening:
        parts["pinned messages"] = opening.pinned_tokens - in_opening
    return parts

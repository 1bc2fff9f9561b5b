"""Views of a session made for a call, and windows filled from the ledger."""

from __future__ import annotations

from nexus.assembly.fit.cut_history import KEEP_USER_TURNS
from nexus.assembly.fit.digest import digest_pins
from nexus.assembly.fit.display_rules import DisplayRules
from nexus.assembly.fit.instructions import instruction_pin, instruction_refs
from nexus.assembly.fit.pins import (
    Pinned,
    excerpt_pin,
    excerpt_refs,
    first_user_message,
    is_current,
    merge_pins,
    message_at,
    pending_request_ref,
    pinned_groups,
    withheld_pin,
    withheld_refs,
)
from nexus.assembly.fit.window import Window
from nexus.assembly.formats.path_format import LedgerView, PathFormat
from nexus.assembly.formats.protocol import MessageFormat, View
from nexus.ledger.replay import LiveCheckpoints, conversation_rows, visible_start
from nexus.tokens.counter import TokenCounter
from nexus.tokens.model import Model
from nexus.types.ledger_entries import Cut, MessageRef, StoredMessage
from nexus.types.settings import Strategy

LARGEST_PART = 4
"""By default a tool result may take this part (a quarter) of the view's size class."""

TASK_RESULTS = 2
"""A hidden first user message may take as much as this many tool results: keep more of it than of an old result."""


def build_view(
    profile: str,
    model: Model,
    available: int,
    counter: TokenCounter,
    strategy: Strategy = "keep_user_turns",
    max_tool_result_tokens: int | None = None,
    image_turns: int = 0,
    *,
    message_format: MessageFormat,
) -> View:
    """Return the view of a profile, model and number of available tokens.

    `max_tool_result_tokens` None is a quarter of the size class, 0 unlimited. Images older than `image_turns` turns may
    be replaced by notes; 0 keeps all.
    """
    size = size_class(available)
    options = "" if strategy == "oldest_first" else f"/{strategy}"
    if max_tool_result_tokens is not None:
        options += f"/results {max_tool_result_tokens}" if max_tool_result_tokens else "/whole results"
    if image_turns:
        options += f"/images {image_turns}"
    name = f"{profile}/{model.provider_format}/2^{size.bit_length() - 1}/{counter.name}{options}"
    if max_tool_result_tokens is None:
        limit = size // LARGEST_PART
    else:
        limit = max_tool_result_tokens
    whole_new = strategy in KEEP_USER_TURNS and max_tool_result_tokens is None
    return View(
        name,
        model.provider_format,
        model.name,
        limit,
        message_format,
        strategy,
        image_turns=image_turns,
        whole_new_results=whole_new,
    )


def size_class(available: int) -> int:
    """Return the largest power of two that is not more than the available tokens."""
    return 1 << (max(available, 1).bit_length() - 1)


def empty_window(view: View, counter: TokenCounter) -> Window:
    """Return the window of a session without entries."""
    reading = LedgerView(lambda _after, _until: (), (0, b""), LiveCheckpoints())
    return fill_window(reading, view, None, counter, view.message_format.on_path(counter))[0]


def fill_window(
    reading: LedgerView, view: View, cut: Cut | None, counter: TokenCounter, path_format: PathFormat
) -> tuple[Window, MessageRef | None]:
    """Return the view's window over a path, and the position of the first user message if the view pins it."""
    live = reading.live
    mark = live.checkpoint
    if not is_current(cut, mark, live.changed_at):
        cut = None
    first, pins = _pins(reading, view, cut, counter)
    lead: tuple[StoredMessage, ...] = ()
    if cut is not None and cut.head is not None:
        begin = visible_start(mark)
        rows = (row for entry in reading.entries(begin.seq - 1, cut.head.seq) for row in conversation_rows(entry))
        lead = tuple(row for row in rows if begin <= row.ref < cut.head)
    rules = DisplayRules(
        view.provider_format,
        view.model,
        view.images,
        view.header,
        path_format,
        lookup=view.lookup,
        render=view.render,
        image_limits=view.image_limits,
    )
    window = Window.open(rules, counter, view.limits, mark=mark, cut=cut, pins=pins, lead=lead)
    window.extend(reading.entries(window.first.seq - 1, None), counter, window.first)
    if not window.path.seqs:
        window.path.head, window.path.head_hash = reading.head
    return window, first


def _pins(
    reading: LedgerView, view: View, cut: Cut | None, counter: TokenCounter
) -> tuple[MessageRef | None, tuple[Pinned, ...]]:
    """Return the position of the first user message, and all pins: user pins, that message, the request, excerpts."""
    mark = reading.live.checkpoint
    cleared_at = reading.live.cleared_at
    pins = list(pinned_groups(reading.entries, reading.live.pins, MessageRef(cleared_at + 1, 0), view.render))
    request_ref = pending_request_ref(cut, mark)
    request = None
    if request_ref is not None:
        request = message_at(reading.entries, request_ref)
    if request is not None:
        pins.append(Pinned(request.ref, (request,), view.max_tool_result_tokens, "asked"))
    first = None
    if view.pin_first_message:
        first = first_user_message(reading.entries, cleared_at, reading.head[0], view.render)
    if first is not None:
        pins.append(Pinned(first.ref, (first,), TASK_RESULTS * view.max_tool_result_tokens, "task"))
    refs, limit = excerpt_refs(cut, mark)
    for ref in refs:
        row = message_at(reading.entries, ref)
        if row is not None:
            pins.append(excerpt_pin(row, limit, view.render))
    instructions = (message_at(reading.entries, place) for place in instruction_refs(cut, mark))
    pins += [instruction_pin(row) for row in instructions if row is not None]
    withheld_rows = (message_at(reading.entries, place) for place in withheld_refs(cut, mark))
    pins += [withheld_pin(row) for row in withheld_rows if row is not None]
    pins += digest_pins(cut.digest if cut is not None else (), counter)
    return first.ref if first else None, merge_pins(*pins)

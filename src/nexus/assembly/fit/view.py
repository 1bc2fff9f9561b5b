"""Views: how one kind of call sees a session, in which message format, and the window filled from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from nexus.assembly.fit.cut import KEEP_USER_TURNS, Strategy
from nexus.assembly.fit.digest import digest_pins
from nexus.assembly.fit.display_rules import DisplayRules
from nexus.assembly.fit.pins import (
    Pinned,
    excerpt_refs,
    first_user_message,
    is_current,
    merge_pins,
    message_at,
    pending_request_ref,
    pinned_groups,
)
from nexus.assembly.fit.truncate import TruncationLimits
from nexus.assembly.fit.window import Window
from nexus.assembly.formats.path_format import LedgerView, PathFormat
from nexus.ledger.replay import LiveCheckpoints, conversation_rows, visible_start
from nexus.text.message_text import RENDER_VERSION
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_price import ANY_MODEL, ImagePrice
from nexus.tokens.model import Model
from nexus.types.history import PLAIN, HistoryHeader, PreviousTurns
from nexus.types.ledger_entries import Cut, MessageRef, StoredMessage
from nexus.types.message import ProviderFormat
from nexus.types.profile import MessageFormatName

LARGEST_PART = 4
"""By default a tool result may take this part (a quarter) of the view's size class."""

TASK_RESULTS = 2
"""A hidden first user message may take as much as this many tool results: keep more of it than of an old result."""


class View(Struct, frozen=True):
    """A session as one kind of call sees it: profile, provider format, size class of the budget, counter and strategy.

    The size class, a power of two, is part of the name: a cut that a small budget needed hides nothing from a large one.
    """

    name: str
    provider_format: ProviderFormat
    model: str

    max_tool_result_tokens: int
    """Limit of one tool result in base tokens; 0 is unlimited."""

    message_format: MessageFormat
    strategy: Strategy = "keep_user_turns"
    pin_first_message: bool = True

    image_turns: int = 0
    """Turns for which images are shown; 0 is unlimited."""

    images: ImagePrice = ANY_MODEL
    header: HistoryHeader = PLAIN
    render: int = RENDER_VERSION

    whole_new_results: bool = False
    """True if new results are whole, and only cuts truncate them to `max_tool_result_tokens`."""

    @property
    def limits(self) -> TruncationLimits:
        """The limits of tool results without a cut."""
        return TruncationLimits(self.max_tool_result_tokens, whole_new=self.whole_new_results)


@dataclass(frozen=True, slots=True)
class FilledWindow:
    """A window filled from the ledger."""

    window: Window

    first_user_message: MessageRef | None = None
    """The session's first user message, if it is pinned."""

    previous_turns: PreviousTurns = field(default_factory=PreviousTurns)
    """Turns before the window, in formats that show one turn."""


class MessageFormat(Protocol):
    """Format in which a profile shows the conversation."""

    @property
    def name(self) -> MessageFormatName:
        """Name in profiles and manifests."""
        ...

    @property
    def shows_one_turn(self) -> bool:
        """True if only the open turn is shown as messages. Blocks report the earlier turns.

        Such a window is not compacted, and it is made for each call, because it is short.
        """
        ...

    @property
    def lists_tools(self) -> bool:
        """True if a block or log entry lists the tools, so that other tools change the text of the prompt."""
        ...

    @property
    def is_hashed(self) -> bool:
        """True if a manifest's id covers the format's name and preamble."""
        ...

    def on_path(self, counter: TokenCounter, /) -> PathFormat:
        """Return the format for a path that is read from its beginning."""
        ...

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
        """Fill the view's window. `path_format` continues the format of an earlier window of the path."""
        ...

    def entry_limits(self, previous: PreviousTurns, last_count: int | None, /) -> Sequence[int]:
        """Return the numbers of earlier entries that blocks may report, in the order to try.

        `last_count` is the number in the turn's previous call, None for the first call of a turn.
        """
        ...

    def covered_messages(self, previous: PreviousTurns, /) -> tuple[int, frozenset[MessageRef]]:
        """Return the number of earlier entries that blocks report, and the positions of their messages."""
        ...

    def plan_eviction(self, previous: PreviousTurns, window: Window, view: View, number: int, /) -> Cut | None:
        """Return cut `number` of the view, by which older entries leave the blocks. None if all are reported."""
        ...


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
    limit = size // LARGEST_PART if max_tool_result_tokens is None else max_tool_result_tokens
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
    rules = DisplayRules(view.provider_format, view.model, view.images, view.header, path_format, render=view.render)
    window = Window.open(rules, counter, view.limits, mark=mark, cut=cut, pins=pins, lead=lead)
    window.extend(reading.entries(window.first.seq - 1, None), counter, window.first)
    if not window.path.seqs:
        window.path.head, window.path.head_hash = reading.head
    return window, first


def _pins(
    reading: LedgerView, view: View, cut: Cut | None, counter: TokenCounter
) -> tuple[MessageRef | None, tuple[Pinned, ...]]:
    """Return the position of the first user message, and all pins: user pins, that message, the request, excerpts."""
    mark, cleared_at = reading.live.checkpoint, reading.live.cleared_at
    pins = list(pinned_groups(reading.entries, reading.live.pins, MessageRef(cleared_at + 1, 0), view.render))
    request_ref = pending_request_ref(cut, mark)
    request = message_at(reading.entries, request_ref) if request_ref is not None else None
    if request is not None:
        pins.append(Pinned(request.ref, (request,), view.max_tool_result_tokens, "asked"))
    first = None
    if view.pin_first_message:
        first = first_user_message(reading.entries, cleared_at, reading.head[0], view.render)
    if first is not None:
        pins.append(Pinned(first.ref, (first,), TASK_RESULTS * view.max_tool_result_tokens, "task"))
    places, limit = excerpt_refs(cut, mark)
    for place in places:
        row = message_at(reading.entries, place)
        if row is not None:
            pins.append(Pinned(row.ref, (row,), limit, "excerpt"))
    pins += digest_pins(cut.digest if cut is not None else (), counter)
    return first.ref if first else None, merge_pins(*pins)

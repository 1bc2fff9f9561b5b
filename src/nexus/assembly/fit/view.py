"""A view: how one kind of call sees a session, and its window filled from the ledger's entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from nexus.assembly.fit.cut import Strategy
from nexus.assembly.fit.pins import (
    Pinned,
    first_user_message,
    merge_pins,
    message_at,
    pending_request_ref,
    pinned_groups,
)
from nexus.assembly.fit.window import Window, extend, is_current, start
from nexus.assembly.forms.protocol import AS_GIVEN, Shape
from nexus.ledger.replay import LiveCheckpoints, conversation_rows, visible_start
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_price import ANY_MODEL, ImagePrice
from nexus.tokens.model import Model
from nexus.types.history import PLAIN, HistoryHeader
from nexus.types.ledger_entries import Cut, Entry, MessageRef, StoredMessage
from nexus.types.message import ProviderFormat
from nexus.types.profile import MessageFormatName

LARGEST_PART = 4
"""A result of a tool may take this part of the view's size class."""

TASK_RESULTS = 2
"""The first task, where it is left out, may take as much as so many results: its middle is worth more than an old result."""


class View(Struct, frozen=True):
    """Profile, wire family, size class of the window (a power of two), counter and strategy, by name.

    What was decided for a small window does not hide history from a large one. `largest` is what one result of a tool may
    take, in base tokens; 0 is no limit. `task` says whether the session's first task stays, `image_turns` for how many turns
    images are shown (0: always), `images` what they cost, `form` how the conversation is shown, `opens` how the profile opens
    this session's history.
    """

    name: str
    wire: ProviderFormat
    model: str
    max_tool_result_tokens: int
    strategy: Strategy = "oldest_first"
    pin_first_message: bool = True
    image_turns: int = 0
    images: ImagePrice = ANY_MODEL
    message_format: MessageFormatName = "roles"
    header: HistoryHeader = PLAIN


class LedgerView(Struct, frozen=True):
    """What a window is filled from: entries `after < seq <= until`, the path's head, what its marks add up to, its shape."""

    entries: Callable[[int, int | None], Iterable[Entry]]
    head: tuple[int, bytes]
    live: LiveCheckpoints
    shape: Shape = AS_GIVEN


def build_view(
    profile: str,
    model: Model,
    available: int,
    counter: TokenCounter,
    strategy: Strategy = "oldest_first",
    max_tool_result_tokens: int | None = None,
    image_turns: int = 0,
) -> View:
    """The view of a profile, model and available tokens.

    `max_tool_result_tokens` is what one result of a tool may take, in base tokens: None is a quarter of the size class, 0 no limit.
    Images older than `image_turns` turns may become notes; 0 keeps all.
    """
    size = size_class(available)
    kind = "" if strategy == "oldest_first" else f"/{strategy}"
    if max_tool_result_tokens is not None:
        kind += f"/results {max_tool_result_tokens}" if max_tool_result_tokens else "/whole results"
    if image_turns:
        kind += f"/images {image_turns}"
    name = f"{profile}/{model.wire}/2^{size.bit_length() - 1}/{counter.name}{kind}"
    largest = size // LARGEST_PART if max_tool_result_tokens is None else max_tool_result_tokens
    return View(name, model.wire, model.name, largest, strategy, image_turns=image_turns)


def size_class(available: int) -> int:
    """The largest power of two that is not more than the available tokens."""
    return 1 << (max(available, 1).bit_length() - 1)


def empty_window(view: View, counter: TokenCounter, shape: Shape = AS_GIVEN) -> Window:
    """The window of a session that has nothing yet."""
    nothing = LedgerView(lambda _after, _until: (), (0, b""), LiveCheckpoints(), shape)
    return fill_window(nothing, view, None, counter, task=False)[0]


def fill_window(
    reading: LedgerView, view: View, cut: Cut | None, counter: TokenCounter, *, task: bool
) -> tuple[Window, MessageRef | None]:
    """The view's window over a path, and the place of the session's first task, which stays where `task` says so."""
    live = reading.live
    mark = live.mark
    if not is_current(cut, mark, live.changed_at):
        cut = None
    first, own = _pins(reading, view, cut, task=task)
    lead: Sequence[StoredMessage] = ()
    if cut is not None and cut.head is not None:
        begin = visible_start(mark)
        before = (row for entry in reading.entries(begin.seq - 1, cut.head.seq) for row in conversation_rows(entry))
        lead = tuple(row for row in before if begin <= row.place < cut.head)
    window, place = start(
        counter,
        mark=mark,
        cut=cut,
        changed_at=live.changed_at,
        wire=view.wire,
        model=view.model,
        pins=own,
        lead=tuple(lead),
        largest=view.max_tool_result_tokens,
        images=view.images,
        opens=view.header,
        shape=reading.shape,
    )
    extend(window, reading.entries(place.seq - 1, None), counter, place)
    if not window.seqs:
        window.head, window.head_hash = reading.head
    return window, first


def _pins(
    reading: LedgerView, view: View, cut: Cut | None, *, task: bool
) -> tuple[MessageRef | None, tuple[Pinned, ...]]:
    """The place of the first task, and the groups that stay: pinned ones, that task, and the request being answered."""
    mark, after = reading.live.mark, reading.live.cleared_at
    begin = MessageRef(after + 1, 0)
    found = list(pinned_groups(reading.entries, reading.live.pins, begin))
    asked = pending_request_ref(cut, mark)
    row = message_at(reading.entries, asked) if asked is not None else None
    if row is not None:
        found.append(Pinned(row.place, (row,), view.max_tool_result_tokens, "asked"))
    first = first_user_message(reading.entries, after, reading.head[0]) if task else None
    if first is not None:
        found.append(Pinned(first.place, (first,), TASK_RESULTS * view.max_tool_result_tokens, "task"))
    return first.place if first else None, merge_pins(*found)

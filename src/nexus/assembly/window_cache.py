"""LRU cache of history windows, extended incrementally from the ledger.

A warm call reads only new entries. A window is made again from the ledger after another kind of checkpoint, a
cut by another process, a change of model, or where a new turn changes what its format shows. Formats that show one turn get a new window for each call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, cast

from msgspec.structs import replace

from nexus.assembly.fit.view import empty_window
from nexus.assembly.fit.window import Window
from nexus.assembly.formats.path_format import LedgerView
from nexus.assembly.formats.protocol import View
from nexus.context import AssembledContext, engine_state
from nexus.ledger import replay
from nexus.ledger.overlay import PathOverlay
from nexus.ledger.store import HistoryStore, LedgerStore
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_price import ImagePrice
from nexus.tokens.model_names import base_model_name
from nexus.types.history import HistoryHeader, Lookup, PreviousTurns
from nexus.types.ledger_entries import Cut, Entry, MessageRef
from nexus.types.message import Message
from nexus.types.profile import MessageFormatName

HeaderSource: TypeAlias = Callable[[Entry | None], HistoryHeader]
"""Returns the header of the history for a current compaction or clear."""

MAX_WINDOWS = 1_024
MAX_TOKENS = 1_000_000
"""Cached windows, and the base tokens in them; the least recently used goes first, the newest stays."""

MESSAGE_TOKENS = 50
"""Memory that a message takes besides its text, in tokens."""

_Key: TypeAlias = tuple[int, str, str, str, MessageFormatName, Lookup]
"""Thread, view, model (see `_thinking_key`), rule of image prices, message format, lookup."""


@dataclass(slots=True)
class CachedWindow:
    """A window with the state of the path when it was made."""

    window: Window

    cut: Cut | None
    """The view's newest cut, even if the window does not apply it."""

    mark: Entry | None
    """The newest clear or the current compaction."""

    first_user_message: MessageRef | None = None
    """The session's first user message, if it is pinned."""

    live: replay.LiveCheckpoints = field(default_factory=replay.LiveCheckpoints)

    after_mark: int = 0
    """Seq of the newest checkpoint."""

    instructions: tuple[Message, ...] | None = None
    """System messages that open the session; None if they were not read yet."""

    previous_turns: PreviousTurns = field(default_factory=PreviousTurns)
    """Turns before the window, in formats that show one turn."""

    @property
    def tokens(self) -> int:
        """Size of the window, about."""
        return self.window.sums[-1] + MESSAGE_TOKENS * len(self.window.messages)

    @property
    def cut_number(self) -> int:
        """Number of the view's newest cut."""
        if self.cut is not None:
            return self.cut.number
        return 0


class WindowCache:
    """The windows of one engine, by thread and view."""

    def __init__(self, store: LedgerStore, counter: TokenCounter) -> None:
        self._store = store
        self._counter = counter
        self._windows: OrderedDict[_Key, CachedWindow] = OrderedDict()

    def of(
        self,
        thread: int | None,
        view: View,
        header: HeaderSource,
        *,
        starts_turn: bool,
        store: LedgerStore | None = None,
    ) -> CachedWindow:
        """Return the window of a view at the ledger's head, or at the head of an overlaid `store`.

        The header of a new session is read in each call until the session has its first entry.
        """
        first_header = header(None)
        store = store or self._store
        if thread is None or (first_header.started and not store.head(thread)[0]):
            window = empty_window(replace(view, header=first_header), self._counter)
            return CachedWindow(window, None, None, instructions=())
        if view.message_format.memory is not None:
            cut = store.last_cut(thread, view.name)
            cached = self._filled(store, thread, view, cut, starts_turn=starts_turn)
        else:
            cached = self._cached(store, thread, view, header, starts_turn=starts_turn)
        if cached.instructions is None and cached.window.head:
            cached.instructions = tuple(row.message for row in store.instructions(thread))
        return cached

    def keep_after(self, ctx: AssembledContext, cut: Cut, thread: int) -> None:
        """Continue with the window after a recorded context's cut, which the next call would otherwise read again.

        It does if the cut was made from another window, as of an overlay or from before a checkpoint, or if another
        process decided for this view first.
        """
        model = ctx.accounting.model_info
        manifest = ctx.provenance.manifest
        state = engine_state(ctx)
        model_key = _thinking_key(model.provider_format, model.name)
        key = (thread, cut.view, model_key, _price_key(manifest.images), manifest.message_format, manifest.lookup)
        cached = self._windows.get(key)
        before, after = (state.cut_windows if state is not None else None) or (None, None)
        if cached is not None and cached.window is before:
            cached.window = cast("Window", after)
            cached.cut = cut

    def _cached(
        self, store: LedgerStore, thread: int, view: View, header: HeaderSource, *, starts_turn: bool
    ) -> CachedWindow:
        """Return the whole history's window, extended if that is enough, else made again."""
        model_key = _thinking_key(view.provider_format, view.model)
        key = (thread, view.name, model_key, _price_key(view.images), view.message_format.name, view.lookup)
        cut = store.last_cut(thread, view.name)
        cached = self._windows.get(key)
        if isinstance(store, PathOverlay) and not (
            store.is_beginning and (cached is None or cached.window.head <= store.until)
        ):
            return self._filled(store, thread, view, cut, header=header, starts_turn=starts_turn)
        if cached is not None and self._is_extended(store, cached, thread, view, cut, starts_turn=starts_turn):
            self._windows.move_to_end(key)
            return cached
        cached = self._windows[key] = self._filled(
            store, thread, view, cut, header=header, previous=cached, starts_turn=starts_turn
        )
        tokens = sum(other.tokens for other in self._windows.values())
        while len(self._windows) > 1 and (len(self._windows) > MAX_WINDOWS or tokens > MAX_TOKENS):
            tokens -= self._windows.popitem(last=False)[1].tokens
        return cached

    def _is_extended(
        self,
        store: HistoryStore,
        cached: CachedWindow,
        thread: int,
        view: View,
        cut: Cut | None,
        *,
        starts_turn: bool,
    ) -> bool:
        """Extend a cached window to the ledger's head; return False if it must be made again."""
        if cached.cut != cut:
            return False
        if view.pin_first_message and cached.first_user_message is None:
            return False
        window = cached.window
        # A calibration has changed the price of images, or the configuration their size.
        if window.rules.images != view.images or window.rules.image_limits != view.image_limits:
            return False
        new = store.entries(thread, window.head)
        path_format = window.rules.path_format
        is_append = window.extend(path_format.follow_entries(new), self._counter)
        return is_append and path_format.is_valid_in(window.path.turn + starts_turn)

    def _filled(
        self,
        store: HistoryStore,
        thread: int,
        view: View,
        cut: Cut | None,
        *,
        header: HeaderSource | None = None,
        previous: CachedWindow | None = None,
        starts_turn: bool = False,
    ) -> CachedWindow:
        """Return a window read from the ledger. It continues the path format of the previous window."""
        checkpoints: Sequence[Entry] = store.checkpoints(thread, replaced=False)
        live = replay.live_checkpoints(checkpoints)
        reading = LedgerView(partial(store.entries, thread), store.head(thread), live)
        filled = view.message_format.fill_window(
            reading,
            replace(view, header=header(live.checkpoint)) if header is not None else view,
            cut,
            self._counter,
            starts_turn=starts_turn,
            path_format=previous.window.rules.path_format if previous is not None else None,
        )
        return CachedWindow(
            filled.window,
            cut,
            live.checkpoint,
            filled.first_user_message,
            live,
            checkpoints[0].seq if checkpoints else 0,
            previous_turns=filled.previous_turns,
        )


def _thinking_key(wire: str, model: str) -> str:
    """Return the part of a model's name that decides what is shown: thinking returns to the model that wrote it."""
    if wire == "anthropic":
        return base_model_name(model)
    return ""


def _price_key(images: ImagePrice) -> str:
    """Return the rule of image prices without the factor: each calibration of a long session would leave a window."""
    return f"{images.vendor}/{images.model}"

"""The windows of an engine: kept from call to call and extended by what is new in the ledger.

State over time. A window that is kept costs a call only what came since; one that another kind of mark, a cut of another
process or a change of model has overtaken is made anew from the ledger. A form that shows one turn alone (`nexus.assembly.forms`)
gets a window of that turn, and the rows before it that its blocks tell of.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from msgspec.structs import replace

from nexus.assembly.fit.view import LedgerView, View, empty_window, fill_window
from nexus.assembly.fit.window import Window, extend
from nexus.assembly.forms.one_turn import turn_window
from nexus.assembly.forms.turnlog import Log, as_shaped, shape_of
from nexus.context import AssembledContext, engine_state
from nexus.ledger import replay
from nexus.ledger.store import LedgerStore
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_price import ImagePrice
from nexus.tokens.model import Model
from nexus.tokens.model_names import base_model_name
from nexus.types.history import HistoryHeader, PreviousTurns
from nexus.types.ledger_entries import Cut, Entry, MessageRef
from nexus.types.message import Message
from nexus.types.profile import ONE_TURN, MessageFormatName

Opening: TypeAlias = Callable[[Entry | None], HistoryHeader]

WINDOWS = 64
"""Windows kept at a time; the one not used for longest goes first."""


@dataclass(slots=True)
class CachedWindow:
    """A window with what was known when it was made: the view's newest cut, the marks that hold, the first task's place.

    `earlier` is what lies before a window of one turn.
    """

    window: Window
    cut_number: int
    mark: Entry | None
    task: MessageRef | None = None
    live: replay.LiveCheckpoints = field(default_factory=replay.LiveCheckpoints)
    after_mark: int = 0
    instructions: tuple[Message, ...] | None = None
    earlier: PreviousTurns = field(default_factory=PreviousTurns)


class WindowCache:
    """The windows of one engine, by thread and view. `task` says whether a session's first task stays."""

    def __init__(self, store: LedgerStore, counter: TokenCounter, *, task: bool) -> None:
        self._store, self._counter, self._task = store, counter, task
        self._kept: OrderedDict[tuple[int, str, str, ImagePrice, MessageFormatName], CachedWindow] = OrderedDict()

    def of(self, thread: int | None, view: View, opens: Opening, *, begins: bool) -> CachedWindow:
        """The window of a view as the ledger stands now. `begins` says that the event begins a turn.

        `opens` tells for the mark in force how a history opens; it is asked again until the session has begun.
        """
        first = opens(None)
        if thread is None or (first.started and not self._store.head(thread)[0]):
            shape = shape_of(view.message_format, self._counter)
            return CachedWindow(
                empty_window(replace(view, header=first), self._counter, shape), 0, None, instructions=()
            )
        kept = (
            self._of_turn(thread, view, begins=begins)
            if view.message_format in ONE_TURN
            else self._of(thread, view, opens)
        )
        if kept.instructions is None and kept.window.head:
            kept.instructions = tuple(row.message for row in self._store.instructions(thread))
        return kept

    def keep_after(self, ctx: AssembledContext, cut: Cut, thread: int) -> None:
        """Goes on with the window that the cut of a recorded context left; the next call would read the same again."""
        before = self._kept.get(
            (
                thread,
                cut.view,
                _answers_as(ctx.accounting.model_info),
                ctx.provenance.manifest.images,
                ctx.provenance.manifest.form,
            )
        )
        state = engine_state(ctx)
        window = state.window_after_cut if state is not None else None
        if before is not None and isinstance(window, Window) and before.cut_number == cut.number - 1:
            before.window, before.cut_number = window, cut.number

    def _of(self, thread: int, view: View, opens: Opening) -> CachedWindow:
        """The whole history's window, extended by what is new, or made anew where that is no mere append."""
        key = (thread, view.name, _answers_as(view), view.images, view.message_format)
        cut = self._store.last_cut(thread, view.name)
        number = cut.number if cut else 0
        kept = self._kept.get(key)
        told = kept is not None and (kept.task is not None or not self._task)
        if kept is not None and told and kept.cut_number == number and self._extended(kept.window, thread):
            self._kept.move_to_end(key)
            return kept
        reading, marks = self._reading(thread)
        shape = kept.window.shape if kept is not None else shape_of(view.message_format, self._counter)
        reading = as_shaped(reading, shape)
        live = reading.live
        view = replace(view, header=opens(live.mark))
        window, task = fill_window(reading, view, cut, self._counter, task=self._task)
        kept = self._kept[key] = CachedWindow(window, number, live.mark, task, live, marks[0].seq if marks else 0)
        while len(self._kept) > WINDOWS:
            self._kept.popitem(last=False)
        return kept

    def _of_turn(self, thread: int, view: View, *, begins: bool) -> CachedWindow:
        """The window of the open turn, made anew for each call: it is short."""
        cut = self._store.last_cut(thread, view.name)
        reading, marks = self._reading(thread)
        window, earlier = turn_window(reading, view, cut, self._counter, opens=begins)
        live, number = reading.live, cut.number if cut else 0
        return CachedWindow(window, number, live.mark, None, live, marks[0].seq if marks else 0, earlier=earlier)

    def _reading(self, thread: int) -> tuple[LedgerView, Sequence[Entry]]:
        marks = self._store.marks(thread)
        return LedgerView(
            partial(self._store.entries, thread), self._store.head(thread), replay.live_checkpoints(marks)
        ), marks

    def _extended(self, window: Window, thread: int) -> bool:
        new = self._store.entries(thread, window.head)
        if isinstance(window.shape, Log):
            new = [*new]
            window.shape.add(new)
            new = window.shape.shaped(new)
        return extend(window, new, self._counter)


def _answers_as(model: Model | View) -> str:
    """The part of a model's name that decides what is shown: where thinking goes back to the model that wrote it."""
    name = model.model if isinstance(model, View) else model.name
    return base_model_name(name) if model.wire == "anthropic" else ""

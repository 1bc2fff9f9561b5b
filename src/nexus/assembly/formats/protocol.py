"""The protocol of a message format, with the view that it is a part of and the window that it fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from msgspec import Struct

from nexus.assembly.fit.truncate_results import TruncationLimits
from nexus.assembly.fit.window import Window
from nexus.assembly.formats.path_format import LedgerView, PathFormat
from nexus.text.message_text import RENDER_VERSION
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_limits import ImageLimits
from nexus.tokens.image_price import ANY_MODEL, ImagePrice
from nexus.types.history import PLAIN, HistoryHeader, Lookup, Memory, PreviousTurns
from nexus.types.ledger_entries import Cut, MessageRef
from nexus.types.message import Message, ProviderFormat
from nexus.types.profile import MessageFormatName
from nexus.types.settings import Strategy


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
    image_limits: ImageLimits | None = None

    lookup: Lookup = "command"
    """What notices say about where the whole can be read. It depends on the tools, and is no part of the name."""

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


@runtime_checkable
class MessageFormat(Protocol):
    """Format in which a profile shows the conversation."""

    @property
    def name(self) -> MessageFormatName:
        """Name in profiles and manifests."""
        ...

    @property
    def memory(self) -> Memory | None:
        """The blocks that report the earlier turns, if only the open turn is shown as messages; else None.

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

    @property
    def openings(self) -> Mapping[str, str]:
        """Opening text of the blocks of the format's own sources, by source. These blocks are already escaped."""
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

    def reply(self, message: Message, is_offered: Callable[[str], bool], call_id: str, /) -> Message:
        """Return the meaning of a model's reply, which may imitate the format.

        `is_offered` tells if a tool was offered. A call that only the imitation shows gets an id that begins with `call_id`.
        """
        ...

    def plain_text(self, message: Message, /) -> str:
        """Return a shown message's text without the additions of the format."""
        ...

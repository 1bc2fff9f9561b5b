"""The format `roles`: messages in real roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from nexus.assembly.fit.view import fill_window
from nexus.assembly.fit.window import Window
from nexus.assembly.formats.path_format import UNFORMATTED, LedgerView, PathFormat
from nexus.assembly.formats.protocol import FilledWindow, View
from nexus.text.message_text import RENDER_VERSION
from nexus.tokens.counter import TokenCounter
from nexus.types.history import Memory, PreviousTurns
from nexus.types.ledger_entries import Cut, MessageRef
from nexus.types.message import Message
from nexus.types.profile import MessageFormatName


class RolesFormat:
    """Real roles. The base of formats that show the whole history."""

    name: MessageFormatName = "roles"
    memory: Memory | None = None
    lists_tools = False
    is_hashed = False  # this was the only format when the first manifests were recorded
    openings: Mapping[str, str] = MappingProxyType({})

    def on_path(self, _counter: TokenCounter, /, _render: int = RENDER_VERSION) -> PathFormat:
        """Return the shared path format, which has no state."""
        return UNFORMATTED

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
        """Fill a window with the whole visible history."""
        del starts_turn
        path_format = path_format or self.on_path(counter, view.render)
        return FilledWindow(*fill_window(path_format.follow(reading), view, cut, counter, path_format))

    def entry_limits(self, previous: PreviousTurns, _last_count: int | None, /) -> Sequence[int]:
        """Return one limit: no block reports earlier entries."""
        return (previous.max_entries,)

    def covered_messages(self, _previous: PreviousTurns, /) -> tuple[int, frozenset[MessageRef]]:
        """Return no messages: none is in a block."""
        return 0, frozenset()

    def plan_eviction(self, _previous: PreviousTurns, _window: Window, _view: View, _number: int, /) -> Cut | None:
        """Return None."""
        return None

    def reply(self, message: Message, _is_offered: Callable[[str], bool], _call_id: str, /) -> Message:
        """Return the message unchanged: a reply in real roles imitates no format."""
        return message

    def plain_text(self, message: Message, /) -> str:
        """Return the message's text."""
        return message.text()


ROLES = RolesFormat()

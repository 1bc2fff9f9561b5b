"""Inputs of assembly besides the request.

The engine collects the rest, or replay reads it back from a recorded call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from nexus.assembly.fit.window import Window
from nexus.assembly.formats.protocol import View
from nexus.assembly.manifest_store import StoredManifest
from nexus.context import Mirrored, Renderers, StoredEvent
from nexus.errors import BadEvent
from nexus.policy import DeniedTool
from nexus.tokens.budget import TokenBudget, compute_budget
from nexus.tokens.model import Model
from nexus.tokens.scale import TokenScale
from nexus.types.block import Block, ContextWarning
from nexus.types.ledger_entries import Entry, MessageRef
from nexus.types.message import Image, Message, Text
from nexus.types.request import Event, Request
from nexus.types.settings import is_neutral, output_limit
from nexus.types.tool_definition import ToolSpec
from nexus.workspace.source_context import Source, SourceContext


@dataclass(frozen=True, slots=True)
class StoredSession:
    """State of a session in the ledger besides its messages. The defaults are a new session's."""

    thread: int = 0
    label: str = ""
    """The session's own label where the request names an alias of it."""

    instructions: tuple[Message, ...] = ()
    """System messages that open the session."""

    mark: Entry | None = None
    """The newest clear or the current compaction."""

    after_mark: int = 0
    """Seq of the newest checkpoint."""

    may_compact: bool = True
    """False if a compaction was undone and the session has not continued since."""

    @property
    def mark_seq(self) -> int:
        """Seq of `mark`, 0 without one."""
        if self.mark:
            return self.mark.seq
        return 0


@dataclass(frozen=True, slots=True)
class LastCall:
    """The view's last recorded call, as far as this one continues it."""

    manifest: StoredManifest | None = None
    frozen_blocks: tuple[Block, ...] | None = None
    """Blocks of the system prompt that the session repeats, in profiles that freeze it."""

    read_blocks: Callable[[], tuple[Block, ...]] = tuple[Block, ...]
    """Reads the call's blocks, for files that cannot be read now."""


@dataclass(frozen=True, slots=True)
class MirroredList:
    """Place, pins and system prompt of the message list of a caller who keeps its own."""

    place: Mirrored | None = None
    """Where the list belongs; None without a list, and in a replay."""

    pins: tuple[MessageRef, ...] = ()
    system_parts: tuple[tuple[int, int], ...] = ()
    """Beginning and end of each block in which the system prompt came."""

    system_names: tuple[tuple[int, int, str], ...] = ()
    """Beginning, end and name of each message in which it came, if one has a name."""


@dataclass(frozen=True, slots=True)
class AssemblyInputs:
    """Everything that assembly needs besides the request and the profile."""

    source_context: SourceContext
    sources: Mapping[str, Source]
    scale: TokenScale
    view: View
    window: Window
    cut_number: int
    """Number of the view's next cut."""

    session: StoredSession
    last: LastCall
    workspace: str
    renderers: Renderers

    tools: tuple[ToolSpec, ...] | None = None
    """The tools of a recorded call, as they were sent; None for the request's."""

    denied_tools: tuple[DeniedTool, ...] = ()

    stored_event: StoredEvent | None = None
    """The event, if the ledger already has it."""

    mirrored: MirroredList = MirroredList()
    warnings: tuple[ContextWarning, ...] = ()
    """Warnings from before assembly."""


def plan_budget(request: Request, model: Model) -> TokenBudget:
    """Return the budget before anything is counted. The request's maximum of output tokens is its reserve."""
    model_config = request.settings.model_settings()
    reserve = output_limit(model_config)
    if reserve is not None and is_neutral(model_config):
        reserve = min(reserve, model.max_output_tokens or reserve)  # a neutral limit is lowered to the longest reply
    budget = compute_budget(model, available_tokens=request.settings.budget, reserve_response=reserve)
    if not request.most_tokens:
        return budget
    return msgspec.structs.replace(budget, available=min(budget.available, request.most_tokens))


_DICTS = (
    "pass a text or a nexus.Event; a provider's whole message list goes to nx.mirror(…), and nexus.read_messages(…) makes "
    "messages of tool results"
)
"""What to do with a provider's dicts."""


def as_event(event: str | Event | Iterable[Message], images: Sequence[Image]) -> Event:
    """Return the event for a user's text, an Event, or results of tool calls, with images. Raises BadEvent."""
    try:
        parts = tuple(images)
        if isinstance(event, Mapping):
            raise BadEvent(f"event is a dict ({_DICTS})")
        messages = () if isinstance(event, (Event, str)) else tuple(event)
        if isinstance(event, Event):
            if parts:
                return replace(event, content=(*event.content, *parts))
            return event
    except TypeError as error:
        raise BadEvent(f"event invalid: {error} (pass a text, a nexus.Event, or results as nexus.tool(…))") from error
    if isinstance(event, str):
        return Event(content=(Text(event), *parts))
    for other in (message for message in messages if not isinstance(message, Message)):
        advice = "pass a text, a nexus.Event, or results as nexus.tool(…)"
        if isinstance(other, Mapping):
            advice = _DICTS
        raise BadEvent(f"event has {type(other).__name__} where messages are expected ({advice})")
    wrong = next((message for message in messages if message.role not in ("tool", "user")), None)
    if wrong is None and messages and messages[0].role != "tool":
        wrong = messages[0]
    if wrong is not None:
        raise BadEvent(
            f"event has a message of role '{wrong.role}' where tool results are expected (pass results as "
            "nexus.tool(…) and user input as text, and record assistant messages)"
        )
    return Event(results=messages, content=parts)

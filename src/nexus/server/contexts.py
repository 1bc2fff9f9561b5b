"""Contexts that wait in memory for the record of their reply, bounded in number, messages and bytes; the oldest go first.

A context that went is assembled again for its record, or mirrored again.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import OrderedDict
from sys import getsizeof
from typing import NamedTuple, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.context import AssembledContext, EngineState, engine_state
from nexus.engine.mirror import PlacedList
from nexus.types.message import Note, Text, Thinking
from nexus.types.request import Event, Request

MAX_CONTEXTS = 256
MAX_CONTEXT_MESSAGES = 50_000
MAX_CONTEXT_BYTES = 64 << 20
"""Contexts of a tenant, their messages, and their bytes."""

MAX_ALL_BYTES = 256 << 20
"""Bytes of the contexts of all tenants."""


_WITH_TEXT = frozenset((Text, Note, Thinking))


BEGUN_MS = 5_000
"""How long the context that a turn began with serves its first call: files of the workspace may change meanwhile."""


class WaitingContext(NamedTuple):
    """The part of a context that its body and its record need, and the bytes of its texts and images."""

    ctx: AssembledContext
    bytes: int


class _Entry(Struct, frozen=True):
    number: int
    """Rises with each context of the server."""
    context: WaitingContext
    request: Request | None
    """The request of a turn that was just begun."""


class TenantContexts:
    """The waiting contexts of one tenant, by id. Get it from `WaitingContexts.of`."""

    def __init__(self, shared: WaitingContexts) -> None:
        self._shared = shared
        self._contexts: OrderedDict[str, _Entry] = OrderedDict()
        self.messages = self.bytes = 0

    def __len__(self) -> int:
        return len(self._contexts)

    def get(self, context_id: str) -> AssembledContext | None:
        """Return a context; None if it went, or never was."""
        entry = self._contexts.get(context_id)
        if entry is not None:
            return entry.context.ctx
        return None

    def keep(self, context_id: str, context: WaitingContext, request: Request | None = None) -> None:
        """Keep a context under an id; older ones go if there are too many, but never this one.

        Args:
            context_id: The id; of a turn that was just begun, the agent's.
            context: The context.
            request: The request of a turn that was just begun, for `take_begun`.
        """
        self._take(context_id)
        self._contexts[context_id] = _Entry(next(self._shared.numbers), context, request)
        self.messages += len(context.ctx.history)
        self.bytes += context.bytes
        while len(self) > MAX_CONTEXTS or (
            len(self) > 1 and (self.messages > MAX_CONTEXT_MESSAGES or self.bytes > MAX_CONTEXT_BYTES)
        ):
            self.drop_oldest()
        self._shared.make_room()

    def take_begun(self, agent_id: str, request: Request, now_ms: int) -> WaitingContext | None:
        """Remove the context of the turn that an agent has just begun, and return it if it is one for this request.

        The event of the request is the turn's.
        """
        entry = self._take(agent_id)
        if entry is None or entry.request is None:
            return None
        age_ms = now_ms - entry.context.ctx.event[-1].at_ms
        first = entry.request
        if not 0 <= age_ms <= BEGUN_MS or replace(request, event=first.event, session=first.session) != first:
            return None
        return entry.context

    @property
    def oldest(self) -> int:
        """The number of the oldest context. Raises StopIteration without one."""
        return next(iter(self._contexts.values())).number

    def drop_oldest(self) -> None:
        """Drop the oldest context."""
        self.drop(next(iter(self._contexts)))

    def drop(self, context_id: str) -> None:
        """Drop a context, if it is still there."""
        self._take(context_id)

    def _take(self, context_id: str) -> _Entry | None:
        entry = self._contexts.pop(context_id, None)
        if entry is not None:
            self.messages -= len(entry.context.ctx.history)
            self.bytes -= entry.context.bytes
        return entry


class WaitingContexts:
    """The waiting contexts of all tenants."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self._tenants: dict[str, TenantContexts] = {}

    @property
    def bytes(self) -> int:
        """Bytes of all contexts."""
        return sum(tenant.bytes for tenant in self._tenants.values())

    def of(self, tenant: str) -> TenantContexts:
        """Return the contexts of a tenant that was opened: none yet."""
        contexts = self._tenants[tenant] = TenantContexts(self)
        return contexts

    def forget(self, tenant: str) -> None:
        """Drop the contexts of a tenant that was closed."""
        self._tenants.pop(tenant, None)

    def make_room(self) -> None:
        """Drop the oldest contexts while all take too many bytes, but never the newest one."""
        while self.bytes > MAX_ALL_BYTES and sum(map(len, self._tenants.values())) > 1:
            min(
                (tenant for tenant in self._tenants.values() if len(tenant)), key=lambda tenant: tenant.oldest
            ).drop_oldest()


def waiting_context(ctx: AssembledContext) -> WaitingContext:
    """Return the part of a context that its body and its record need, and the bytes of its texts and images.

    A planner would hold all messages of the session, and the windows of a cut those that it omits: the next call reads
    its window again. Texts that two contexts share are counted for both.
    """
    state = engine_state(ctx)
    if state is not None:
        needed = EngineState(
            state.renderers,
            plain_text=state.plain_text,
            position=state.position,
        )
        ctx = dataclasses.replace(ctx, _engine=needed)
    placed = None
    if ctx.mirrored is not None:
        placed = ctx.mirrored.state
    sizes: dict[int, int] = {}  # by identity: the event's texts are also those of the current message
    for message in (
        *ctx.history,
        *ctx.current,
        *ctx.event,
        *(placed.messages if isinstance(placed, PlacedList) else ()),
    ):
        if message.received:
            sizes[id(message.received)] = getsizeof(message.received)
        for part in message.parts:
            if type(part) in _WITH_TEXT:  # not isinstance, for speed
                text = cast("Text", part).text
                sizes[id(text)] = getsizeof(text)
            else:
                sizes[id(part)] = _encoded_bytes(part)
    provenance = ctx.provenance
    request = provenance.request
    options = None
    if request is not None:
        options = replace(request, event=Event())
    blocks = (provenance.blocks, provenance.already_in_history, provenance.omitted_blocks)
    return WaitingContext(ctx, sum(sizes.values()) + _encoded_bytes((ctx.system_prompt, ctx.tools, blocks, options)))


def _encoded_bytes(value: object) -> int:
    try:
        return len(msgspec.msgpack.encode(value, enc_hook=repr))
    except (ValueError, OverflowError, RecursionError):  # half of a surrogate pair, a huge number
        return len(repr(value))

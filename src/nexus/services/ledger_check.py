"""One ledger for all services on a bus: a process with another one is refused when it starts, and its messages later.

A run is stored in the ledger of the process that accepts it. A process with another ledger would not find it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct

from nexus.bus import Bus
from nexus.bus import Message as BusMessage
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import BusError, BusNoResponder, NotAllowed
from nexus.ledger.store import LedgerStore
from nexus.services.messages import GROUP, read_content
from nexus.services.topics import Topics

LOG = logging.getLogger("nexus.services")

ASK_S = 2.0
"""Seconds for the answer of a process that runs already."""


class LedgerIdentity(Struct, frozen=True):
    """Content of `Topics.LEDGER` and of its reply: the ledger of a process."""

    ledger: str
    """The ledger's id, which a copy or a move does not change."""
    place: str = ""
    """Its file, or its URL without a password."""


def ledger_id(store: LedgerStore) -> str:
    """Return the id of a ledger; empty for a store of an application that has none."""
    return str(getattr(store, "id", ""))


def check_ledger(ledger: str, store: LedgerStore) -> None:
    """Raise NotAllowed if a message names another ledger than the store; an empty name is any."""
    if "" not in (ledger, ledger_id(store)) and ledger != ledger_id(store):
        raise _different("the message is of another ledger", store.location)


@asynccontextmanager
async def shared_ledger(bus: Bus, nx: AsyncEngine) -> AsyncGenerator[None]:
    """Answer other processes on the bus while the block runs. Raises NotAllowed if one runs with another ledger."""
    store = nx.engine.ledger.store
    identity = LedgerIdentity(await nx.run(ledger_id, store), store.location)
    message = BusMessage(Topics.LEDGER, msgspec.to_builtins(identity), tenant=store.tenant)
    try:
        other = read_content(await bus.request(message, timeout_s=ASK_S), LedgerIdentity)
    except BusNoResponder:
        other = identity  # the first process
    except BusError as error:  # also a process of an earlier version, or a user without the permission
        LOG.warning("ledger of other services on the bus not compared: %s", error)
        other = identity
    if "" not in (other.ledger, identity.ledger) and other.ledger != identity.ledger:
        raise _different(f"services with ledger {other.place or other.ledger} run on it", identity.place)

    async def answer(request: BusMessage) -> BusMessage:
        return request.reply(msgspec.to_builtins(identity))

    subscription = await bus.subscribe(Topics.LEDGER, answer, group=GROUP)
    try:
        yield
    finally:
        await subscription.unsubscribe()


def _different(what: str, place: str) -> NotAllowed:
    advice = "start all with one ledger: --ledger or NEXUS_LEDGER; or give each ledger its own --prefix"
    return NotAllowed(f"bus has services of another ledger: {what}, this process has {place} ({advice})")

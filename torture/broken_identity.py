"""Builds that are broken on purpose: each takes a part of whose a message is, or of which turn a reply answers.

Each replaces one thing in this process, as those of `torture.broken`, and is found by `torture.identity`.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from importlib import import_module
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from nexus.engine.mirror import keys
from nexus.errors import NotAccepted
from nexus.types.message import Message


def _attribute(module: str, path: str) -> Any:
    return attrgetter(path)(import_module(module))


def _replace(module: str, path: str, by: Any) -> None:
    """Replace an attribute of a module, or of a class in it, which has to exist."""
    *within, name = path.split(".")
    owner = _attribute(module, ".".join(within)) if within else import_module(module)
    assert hasattr(owner, name), path
    setattr(owner, name, by)


def nameless_events() -> None:
    """The key of an event has no principal."""

    def event_key(event_id: str, principal: str) -> str:
        del principal
        return f"event:{event_id}"

    _replace("nexus.engine.events", "event_key", event_key)


def uncompared_events() -> None:
    """An id that comes again is the same event, whatever it says."""

    def same(*_: object) -> None:
        return

    _replace("nexus.engine.events", "_check_same", same)


def unchecked_turns() -> None:
    """A reply is stored at the end of its session, whatever turn that is in."""

    def check(self: Any, session: str, commit: Any, thread: Any) -> None:
        del self, session, commit, thread

    _replace("nexus.ledger.shared_sql.write", "Writing._check_expectations", check)


def unchecked_fences() -> None:
    """A program that another one replaced goes on writing to its turn."""

    def pass_fence(self: Any, session: str, commit: Any) -> int:
        del self, session
        return commit.fence or 0

    _replace("nexus.ledger.shared_sql.write", "Writing._pass_fence", pass_fence)


def nameless_lists() -> None:
    """The keys of lists have no principal."""
    root = _attribute("nexus.engine.mirror.keys", "ListScope.root.fget")

    def nameless(self: keys.ListScope) -> bytes:
        return root(keys.ListScope(self.name, "", self.conversation))

    _replace("nexus.engine.mirror.keys", "ListScope.root", property(nameless))


def short_overlaps() -> None:
    """Two messages that a window shares with one session decide that it belongs there, however common they are."""
    _replace("nexus.engine.mirror.keys", "LONG_CHARS", 0)
    _replace("nexus.engine.mirror", "LEAST_OVERLAP", 2)


def stored_texts() -> None:
    """A message that the client edited is shown as it is stored, if it begins as it did."""
    content_hash = keys.content_hash

    def beginning(message: Message, places: dict[str, int]) -> bytes:
        text = message.text()
        if message.role == "user" and text:
            return hashlib.sha256(text[:3].encode()).digest()
        return content_hash(message, places)

    for module in ("nexus.engine.mirror.keys", "nexus.engine.mirror.find_place"):
        _replace(module, "content_hash", beginning)


def sessionless_events() -> None:
    """The key of a queued event has no session."""
    sessions = import_module("nexus.ledger.sessions")
    key_of = sessions.event_key

    def event_key(id: str, session: str, principal: str) -> str:  # noqa: A002 - the field's name
        del session
        return key_of(id, "", principal)

    _replace("nexus.ledger.shared_sql.queue", "event_key", event_key)


def joined_senders() -> None:
    """Events that wait are one turn, whoever sent them."""
    batch_of = _attribute("nexus.broker.queue", "next_batch")

    def joined(rows: Any) -> Any:
        return batch_of([replace(row, settings=rows[0].settings) for row in rows])

    _replace("nexus.broker.queue", "next_batch", joined)


def foreign_steering() -> None:
    """An event steers the running turn of whoever has one."""
    steer = _attribute("nexus.broker.broker", "Broker._steer")

    class Anybody:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # pyright: ignore[reportAssignmentType] - a value that is compared alone

    async def steered(self: Any, turn: Any) -> None:
        running = self._running.get(turn.turn.session)
        own = running.settings
        running.settings = Anybody()
        await steer(self, turn)
        running.settings = own

    _replace("nexus.broker.broker", "Broker._steer", steered)


def reused_workers() -> None:
    """The name of a worker's session has the id of its call, and not the reply that has this call."""

    def no_reply(*_: object) -> int:
        return 0

    _replace("nexus.agents.workers", "_reply_with", no_reply)


def local_profiles() -> None:
    """Everybody has the profile of the local user."""
    read = _attribute("nexus.workspace.user_profiles", "UserProfiles.read")

    def local(self: Any, principal: str) -> Any:
        del principal
        return read(self, "")

    _replace("nexus.workspace.user_profiles", "UserProfiles.read", local)


def unowned_runs() -> None:
    """The run of a command is found by its id, whoever names it."""
    run_of = _attribute("nexus.services.orchestrator", "OrchestratorService._run_of")

    async def of_anybody(self: Any, message: Any, command: Any) -> Any:
        with suppress(NotAccepted):
            return await run_of(self, message, command)
        return (await self.broker.current(command.run_id)).event

    _replace("nexus.services.orchestrator", "OrchestratorService._run_of", of_anybody)


def unowned_contexts() -> None:
    """A context is built of the stored call that a request names, whoever's it is."""

    def check(nx: Any, owner_key: str, session: str) -> None:
        del nx, owner_key, session

    _replace("nexus.services.context.builder", "check_owner", check)


def foreign_requests() -> None:
    """An orchestrator requests each context for the same user."""
    request_for = _attribute("nexus.services.bus_models", "_build_request")

    def build_request(turn: Any, ctx: Any) -> Any:
        request = request_for(turn, ctx)
        return replace(request, run=replace(request.run, owner_key="owner0"))

    _replace("nexus.services.bus_models", "_build_request", build_request)


def shared_replies() -> None:
    """The id of a call to a model has its last message alone, so that users who say the same get one reply."""
    request_for = _attribute("nexus.services.bus_models", "_request_for")

    def request(ctx: Any, topic: str) -> Any:
        return replace(request_for(ctx, topic), call_id=str(ctx.to_openai()["messages"][-1]["content"]))

    _replace("nexus.services.bus_models", "_request_for", request)


BUILDS = (
    nameless_events,
    sessionless_events,
    joined_senders,
    foreign_steering,
    reused_workers,
    local_profiles,
    uncompared_events,
    unchecked_turns,
    unchecked_fences,
    nameless_lists,
    short_overlaps,
    stored_texts,
    unowned_runs,
    unowned_contexts,
    foreign_requests,
    shared_replies,
)

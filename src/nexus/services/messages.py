"""Contents of the services' messages, their error envelope, and requests that outlive a restart of what answers them."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.bus import Bus, Message
from nexus.bus.message import now_ms
from nexus.bus.port import error_reply
from nexus.errors import (
    BadBusMessage,
    BusDeadlineExceeded,
    BusError,
    BusNoResponder,
    BusRequestFailed,
    BusUnavailable,
    ModelCallFailed,
    NotAllowed,
)
from nexus.models import ModelReply
from nexus.types.decoding import decodable
from nexus.types.request import Request

T = TypeVar("T")

LOG = logging.getLogger("nexus.services")

GROUP = "services"
"""Group of the processes that share the work of a topic."""

MAX_CONTEXT_BYTES = 256 * 1024
"""Size up to which a context is part of a message; of a larger one only the place in the ledger is sent."""

_PAUSE_S = 0.05
_MAX_PAUSE_S = 1.0


class Run(Struct, frozen=True, omit_defaults=True):
    """Document 000's Run object."""

    owner_key: str
    """Key of the user."""
    current_input: str
    id: str = ""
    """Makes a run repeatable: the same id again is the same run."""
    user_profile: dict[str, Any] = {}


class RunMetadata(Struct, frozen=True, omit_defaults=True):
    """Document 000's metadata of a Run."""

    client_timestamp_utc: str = ""
    client_timezone_offset: int | float | str = 0
    """Minutes as of a browser's `getTimezoneOffset` (-480 is +08:00), or an IANA name."""


class Identities(Protocol):
    """The part of document 000's ConfigService that knows the users."""

    async def get_identity(self, owner_key: str) -> dict[str, Any]:
        """Return a user's profile."""
        ...


class StoredCall(Struct, frozen=True, omit_defaults=True):
    """The next call of an open turn in the ledger, from which any process can assemble the same context."""

    session: str
    turn: int
    options: dict[str, Any] = {}
    """Arguments of `Engine.assemble`, as JSON."""
    hash: str = ""
    """Hash of the request body that must result (`AssembledContext.body_hash`); empty for any."""
    ledger: str = ""
    """Id of the ledger; empty for any."""


class BuildRequest(Struct, frozen=True, omit_defaults=True):
    """Content of `Topics.CONTEXT_BUILD_REQUEST`."""

    run: Run
    metadata: RunMetadata = RunMetadata()
    tools: list[dict[str, Any]] = []
    """Definitions of the tools that the run can call. The builder adds those of its own registry."""
    call: StoredCall | None = None
    """The call that the context is for: a builder with the same ledger takes the memory from it."""


class RunRequest(Struct, frozen=True, omit_defaults=True):
    """Content of `Topics.RUN_REQUEST`."""

    run: Run
    metadata: RunMetadata = RunMetadata()


class _ModelFailure(Struct, frozen=True):
    """Details of the error envelope of a failed call of a model."""

    failure_kind: str = "error"
    retryable: bool = False
    status: int = 0
    retry_after_s: float | None = None
    reply: ModelReply | None = None
    """A reply that was withheld."""


def read_content(message: Message, kind: type[T]) -> T:
    """Return the content of a message. Raises BadBusMessage."""
    try:
        return msgspec.convert(message.content, decodable(kind))
    except msgspec.ValidationError as error:
        text = f"message for {message.topic!r} has another content: {error} (docs/services.md describes it)"
        raise BadBusMessage(text) from error


def check_tenant(message: Message, tenant: str) -> None:
    """Raise NotAllowed for a message of another tenant than the ledger's."""
    if message.tenant not in ("", tenant):
        raise NotAllowed("message is of another tenant than the ledger (use a prefix of the bus for each tenant)")


def call_arguments(request: Request) -> dict[str, Any]:
    """Return the settings and tools of a request as arguments of `Engine.assemble`, as JSON values."""
    return {**msgspec.to_builtins(request.settings), "tools": msgspec.to_builtins(request.tools)}


async def answer(message: Message, work: Callable[[Message], Awaitable[Any]]) -> Message:
    """Return the reply to a message: the result of the work, or an error envelope with kind and text."""
    try:
        return message.reply(await work(message))
    except Exception as error:
        LOG.info("request to %s failed", message.topic, exc_info=True)
        return error_reply(message.topic, error, message, details=_details(error))


def _details(error: Exception) -> dict[str, Any]:
    if not isinstance(error, ModelCallFailed):
        return {}
    return {
        "failure_kind": error.failure_kind,
        "retryable": error.retryable,
        "status": error.status,
        "retry_after_s": error.retry_after_s,
        **({"reply": msgspec.to_builtins(error.reply)} if isinstance(error.reply, ModelReply) else {}),
    }


def model_failure(failed: BusRequestFailed) -> ModelCallFailed | None:
    """Return the failed call of a model that an error envelope reports; None for any other."""
    if failed.error_code != ModelCallFailed.code:
        return None
    try:
        details = msgspec.convert(failed.details, decodable(_ModelFailure))
    except msgspec.ValidationError:
        details = _ModelFailure()
    return ModelCallFailed(
        failed.text,
        details.failure_kind,
        retryable=details.retryable,
        status=details.status,
        retry_after_s=details.retry_after_s,
        reply=details.reply,
    )


async def request_again(
    bus: Bus,
    message: Message,
    *,
    try_s: float,
    total_s: float,
    absent_s: float = math.inf,
    on_absent: Callable[[], None] | None = None,
) -> Message:
    """Send a request until it is answered: processes and the server of the bus may restart meanwhile.

    Only for requests whose second execution has no further effect.

    Args:
        bus: The bus.
        message: The request.
        try_s: Seconds of one try.
        total_s: Seconds of all tries.
        absent_s: Seconds without a subscription of the topic after which BusNoResponder is raised.
        on_absent: Called when the topic has no subscription, before the wait for one.

    Raises:
        BusRequestFailed: As `Bus.request`.
        BadBusMessage: The reply is unreadable, or a reply to another request.
        BusNoResponder: No subscription for `absent_s` or `total_s` seconds.
        BusUnavailable, BusDeadlineExceeded: No reply within `total_s` seconds.
    """
    end_ms = now_ms() + round(total_s * 1000)
    if message.deadline_ms:
        end_ms = min(end_ms, message.deadline_ms)
    pause_s = _PAUSE_S
    unchanged = message
    absent_since = 0.0
    while True:
        remaining_s = (end_ms - now_ms()) / 1000
        error: BusError = BusDeadlineExceeded(f"no reply from {message.topic!r} in time")
        if remaining_s > 0:
            try:
                deadline_ms = now_ms() + round(1000 * min(try_s, remaining_s))
                return checked_reply(message, await bus.request(replace(unchanged, deadline_ms=deadline_ms)))
            except (BusNoResponder, BusUnavailable, BusDeadlineExceeded) as failed:
                if failed.code == "bus_closed":
                    raise
                error = failed
        if not isinstance(error, BusNoResponder):
            absent_since = 0.0
        elif not absent_since:
            absent_since = monotonic()
            if on_absent is not None:
                on_absent()
        elif monotonic() - absent_since >= absent_s:
            raise error
        if end_ms - now_ms() <= pause_s * 1000:
            raise error
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _MAX_PAUSE_S)


def checked_reply(message: Message, reply: Message) -> Message:
    """Return a reply. Raises BadBusMessage if it is to another message, or of another tenant."""
    expected = (message.id, message.correlation_id or message.id, message.tenant)
    if (reply.causation_id, reply.correlation_id, reply.tenant) != expected:
        raise BadBusMessage(f"reply from {message.topic!r} is to another message (answer with `message.reply`)")
    return reply


async def publish_if_possible(bus: Bus, message: Message) -> None:
    """Publish a notification. If that is not possible, it is only logged: the ledger has the state that it reports."""
    try:
        await bus.publish(message)
    except BusError as error:
        LOG.warning("notification for %s not published: %s", message.topic, error)

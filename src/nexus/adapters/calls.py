"""The model calls of an adapter: fitted before they are sent, recorded when the model has answered."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from logging import Logger
from threading import Lock
from typing import Any
from uuid import uuid4

import nexus
from nexus.errors import BadEvent

_LOCKS = weakref.WeakKeyDictionary[nexus.Engine, Lock]()
"""Calls of one engine follow each other, whatever threads they come from."""


def async_engine(nx: nexus.Engine | nexus.AsyncEngine) -> nexus.AsyncEngine:
    """Return the asynchronous form of an engine."""
    if isinstance(nx, nexus.AsyncEngine):
        return nx
    return nexus.AsyncEngine(nx)


def setting_for(call: Any, setting: Any) -> str:
    """Return a setting that a program gave as a text, or as a function of the framework's call."""
    value = setting
    if callable(setting):
        value = setting(call)
    return str(value or "")


class Calls:
    """The model calls of one adapter.

    Args:
        nx: The engine that records. It stays open.
        log: The logger of the adapter's module.
        options: Arguments of `nexus.Engine.mirror` for every call.
    """

    def __init__(self, nx: nexus.Engine | nexus.AsyncEngine, log: Logger, options: dict[str, Any]) -> None:
        self.nx = async_engine(nx)
        self._log = log
        self._options = options
        self._lock = _LOCKS.setdefault(self.nx.engine, Lock())
        self._conversations: dict[int, str] = {}

    def conversation_of(self, messages: Sequence[object]) -> str:
        """Return the conversation of the newest of these objects that is a recorded reply; without one, a new one.

        It goes by the objects' identity: two users may have said and heard the same.
        """
        names = (self._conversations.get(id(message)) for message in reversed(messages))
        return next(filter(None, names), "") or uuid4().hex

    def fit(
        self, messages: Sequence[Any], ending: Sequence[nexus.Message] = (), **arguments: Any
    ) -> nexus.AssembledContext | None:
        """Return the context of a list; None if it is to be sent as it is, because it cannot be read and has no budget.

        Room is left for `ending`, replies that are sent behind it. Raises as `nexus.Engine.mirror`.
        """
        options = {**arguments, **self._options}
        try:
            reserve = nexus.count_tokens(list(ending)) if ending else 0
            with self._lock:
                return self.nx.engine.mirror(list(messages), reserve=reserve, **options)
        except (BadEvent, nexus.LedgerError) as error:
            if options.get("budget") is not None:
                raise
            self._log.warning("call sent as it is, and not recorded: %s: %s", error.code, error)
            return None

    def record(
        self,
        ctx: nexus.AssembledContext | None,
        conversation: str,
        replies: Sequence[object],
        read: Callable[[], nexus.AgentResult],
    ) -> None:
        """Record the replies that `read` returns. The model has answered, so a failure is logged, and never raised."""
        if ctx is None:
            return
        try:
            for reply in replies:
                self._conversations[id(reply)] = conversation
                weakref.finalize(reply, self._conversations.pop, id(reply), None)
            result = read()
            with self._lock:
                self.nx.engine.record(ctx, result)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user gets the answer
            self._log.warning("call not recorded: %s: %s", type(error).__name__, error)

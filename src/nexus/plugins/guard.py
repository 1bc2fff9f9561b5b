"""Calling code of others: it may raise, hang or take long, and the call goes on without it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

from nexus.text.one_line import collapse_whitespace
from nexus.types.block import ContextWarning

TOLD_CHARS = 200
"""What of an error's text is reported."""

T = TypeVar("T")


class InvalidHookResult(Exception):
    """A hook returned what it must not; the text says what, after the hook's name."""


class Guard:
    """Calls functions of plugins within a limit of time. State over time: the calls that have not come back.

    Each call has a thread of its own, which ends with the program. One that does not come back is not called again
    before it has. `timeout_ms` 0 waits for as long as it takes.
    """

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._out: dict[tuple[str, str], Thread] = {}

    def call(
        self, plugin: str, what: str, work: Callable[[], T], *, timeout_ms: int | None = None
    ) -> tuple[T | None, ContextWarning | None]:
        """What `work` returned, or None and what to report. `timeout_ms` replaces the guard's own."""
        key, origin = (plugin, what), f"hook:{plugin}"
        out = self._out.pop(key, None)
        if out is not None and out.is_alive():
            self._out[key] = out
            return None, ContextWarning(
                origin, f"{what} has not come back from an earlier call: it was not called again"
            )
        done: list[T] = []
        failed: list[BaseException] = []
        thread = Thread(
            target=copy_context().run, args=(_answer, work, done, failed), name=f"{origin} {what}", daemon=True
        )
        thread.start()
        most_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        thread.join(most_ms / 1000 if most_ms > 0 else None)
        if failed:
            return None, ContextWarning(origin, f"{what} {describe_error(failed[0])}: it is left out")
        if not done:
            self._out[key] = thread
            return None, ContextWarning(origin, f"{what} took longer than {most_ms:,} ms: it is left out")
        return done[0], None


def describe_error(error: BaseException) -> str:
    """What became of a call that failed: the error's type and the beginning of its text, on one line."""
    try:
        text = collapse_whitespace(str(error))[:TOLD_CHARS]
    except Exception as worse:  # noqa: BLE001 - an error of others may fail to say what it is
        text = f"(its text raises {type(worse).__name__})"
    if isinstance(error, InvalidHookResult):
        return text
    return f"raised {type(error).__name__}: {text}" if text else f"raised {type(error).__name__}"


def _answer(work: Callable[[], T], done: list[T], failed: list[BaseException]) -> None:
    try:
        done.append(work())
    except BaseException as error:  # noqa: BLE001 - whatever it is, the thread that waits reports it
        failed.append(error)

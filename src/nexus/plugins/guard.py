"""Runs plugin code with a timeout and error isolation."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

from nexus.text.one_line import collapse_whitespace
from nexus.types.block import ContextWarning

ERROR_CHARS = 200
"""Maximum length of a reported error text."""

OMITTED = ": omitted"
"""End of a warning about a call whose result the context does without."""

T = TypeVar("T")


class InvalidHookResult(Exception):
    """A hook returned an invalid value; the text continues a sentence that starts with the hook's name."""


class Guard:
    """Calls plugin functions in threads, with a timeout in milliseconds; 0 waits without limit.

    A thread cannot be stopped: it ends with the program. A function that has not returned is not called again before it
    has, so that one hanging hook costs one thread.
    """

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._running: dict[tuple[str, str], Thread] = {}

    def call(
        self, plugin: str, label: str, work: Callable[[], T], *, timeout_ms: int | None = None
    ) -> tuple[T | None, ContextWarning | None]:
        """Return the result of `work`, or None and a warning.

        Args:
            plugin: The plugin's name, for warnings.
            label: The hook or source that is called, for warnings.
            work: The plugin code.
            timeout_ms: Overrides the guard's timeout.
        """
        key, source = (plugin, label), f"hook:{plugin}"
        running = self._running.pop(key, None)
        if running is not None and running.is_alive():
            self._running[key] = running
            return None, ContextWarning(source, f"{label} still running since an earlier call: not called again")
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:  # noqa: BLE001 - the waiting thread reports it, whatever it is
                errors.append(error)

        thread = Thread(target=copy_context().run, args=(run,), name=f"{source} {label}", daemon=True)
        thread.start()
        limit_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        thread.join(limit_ms / 1000 if limit_ms > 0 else None)
        if errors:
            return None, ContextWarning(source, f"{label} {describe_error(errors[0])}{OMITTED}")
        if not results:
            self._running[key] = thread
            return None, ContextWarning(source, f"{label} took longer than {limit_ms:,} ms{OMITTED}")
        return results[0], None


def describe_error(error: BaseException) -> str:
    """Return an error's type and the beginning of its text, on one line, to follow the name of the failed call."""
    try:
        text = collapse_whitespace(str(error))[:ERROR_CHARS]
    except Exception as failure:  # noqa: BLE001 - str() runs code of the plugin's exception class
        text = f"(its text raises {type(failure).__name__})"
    if isinstance(error, InvalidHookResult):
        return text
    return f"raised {type(error).__name__}: {text}" if text else f"raised {type(error).__name__}"

"""SIGTERM and SIGINT as a call that stops a server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Generator[None]:
    """Call `stop` for SIGTERM and SIGINT, where the event loop can and in the main thread."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    added: list[int] = []
    with suppress(NotImplementedError, RuntimeError, ValueError):
        for number in numbers:
            loop.add_signal_handler(number, stop)
            added.append(number)
    try:
        yield
    finally:
        for number in added:
            loop.remove_signal_handler(number)

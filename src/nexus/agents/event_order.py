"""The events of one turn, held to their laws whatever an engine emits."""

from __future__ import annotations

from nexus.types.stream_events import (
    CompactionEnd,
    CompactionStart,
    Sink,
    StreamEnd,
    StreamError,
    StreamEvent,
    StreamStart,
    ToolStatus,
)


class TurnStream:
    """Passes a turn's events on: one start, one end, and an end for every tool and compaction that started.

    Attributes:
        has_ended: True after the end; later events are dropped.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._tools: dict[str, ToolStatus] = {}
        self._is_compacting = False
        self.has_started = self.has_ended = False

    def emit(self, event: StreamEvent) -> None:
        """Pass an event on."""
        if self.has_ended:
            return
        match event:
            case StreamStart():
                if self.has_started:
                    return
                self.has_started = True
            case ToolStatus():
                if event.status == "started":
                    self._tools[event.call_id] = event
                elif self._tools.pop(event.call_id, None) is None:
                    return
            case CompactionStart():
                if self._is_compacting:
                    return
                self._is_compacting = True
            case CompactionEnd():
                if not self._is_compacting:
                    return
                self._is_compacting = False
            case StreamEnd() | StreamError():
                self._close()
                self.has_ended = True
            case _:
                pass
        self._sink(event)

    def _close(self) -> None:
        """End what is still under way."""
        for started in list(self._tools.values()):
            self.emit(ToolStatus(started.call_id, started.name, "failed", "the turn ended"))
        if self._is_compacting:
            self.emit(CompactionEnd())

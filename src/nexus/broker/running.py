"""The turn under way in one session of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nexus.broker.queue_modes import QueueRow


class RunningTurn:
    """A turn under way.

    Attributes:
        rows: The events that it answers; those that steer it join.
        begun_by: Number of the events that it began with.
        ids: Their ids.
        settings: The settings of all of them.
        turn: Its number; 0 before it begins.
        cancel: Interrupts it.
        reason: Why it was interrupted.
    """

    def __init__(self, batch: Sequence[QueueRow]) -> None:
        self.rows = list(batch)
        self.begun_by = len(batch)
        self.ids = [row.row.id for row in batch]
        self.settings = batch[0].settings
        self.turn = 0
        self.cancel = asyncio.Event()
        self.reason = ""

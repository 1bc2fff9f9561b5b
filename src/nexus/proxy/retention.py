"""Erasure of the conversations that nobody has gone on with for long, with their forks and reports, while a proxy runs.

Only what proxies recorded goes: sessions that reports of calls name. A conversation that another session continues or belongs
to stays, and so does one that is in use, which is decided in the transaction that erases it.

Clocks are not trusted blindly, for nothing brings back what was erased. After a jump forward nothing goes before the next
look, an hour later: until then a wrong clock may be set right. Nor does it at the start, if by the clock everything is too old.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct

from nexus.errors import LedgerError, NexusError
from nexus.ledger.documents import PROXY_CALL, pages_of
from nexus.ledger.history_operations import Ledger
from nexus.ledger.sessions import SessionInfo
from nexus.ledger.store import LedgerStore
from nexus.proxy.reports import first_id

LOG = logging.getLogger("nexus.proxy")

PERIOD_S = 3_600.0
"""Seconds from one look to the next."""

PAUSE_S = 0.1
"""Seconds between two steps, in which calls are recorded."""

JUMP_MS = 3_600_000
"""Milliseconds that the time of day may be ahead of the time that has passed since the last look."""

STEP_MESSAGES = 200
"""Messages that are erased in one transaction, unless one conversation has more."""

STEP_REPORTS = 200

MARK = ("nexus:retention", "unfinished")
"""Kind and name of the document that exists while erased text may be left in unused parts of the storage."""

_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock that no change of the time of day moves, and that goes on while the machine sleeps, where there is one."""


class Erased(Struct, frozen=True):
    """Conversations and reports that one step erased."""

    conversations: int = 0
    reports: Sequence[str] = ()
    """Ids of their calls."""


class _Conversation(Struct, frozen=True):
    """A conversation with its forks."""

    labels: tuple[str, ...]
    reports: tuple[str, ...]
    messages: int


def uptime_ms() -> int:
    """Return the milliseconds since the machine was started."""
    return time.clock_gettime_ns(_UPTIME) // 1_000_000


class Retention:
    """Erases what is older than allowed, a little at a time.

    Args:
        ledger: The proxy's ledger.
        retain_ms: Milliseconds that a conversation stays after its newest call.
        clock_ms: Returns the time of day.
        forget: Called with the ids of the calls whose reports were erased.
        uptime_ms: Returns a time that never jumps.
    """

    def __init__(
        self,
        ledger: Ledger,
        retain_ms: int,
        clock_ms: Callable[[], int],
        forget: Callable[[Iterable[str]], None],
        uptime_ms: Callable[[], int] = uptime_ms,
    ) -> None:
        self._ledger = ledger
        self._retain_ms = retain_ms
        self._clock_ms = clock_ms
        self._forget = forget
        self._uptime_ms = uptime_ms
        self._offset_ms: int | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Look at once and then every hour, until `stopping` is set."""
        while not stopping.is_set():
            await self.look(stopping)
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), PERIOD_S)

    async def look(self, stopping: asyncio.Event) -> int:
        """Erase what is too old now, and return the number of conversations. What fails is tried at the next look."""
        conversations = 0
        reports = 0
        try:
            before_ms = await asyncio.to_thread(self._limit_ms)
            if before_ms is None:
                return 0
            steps = erase_older(self._ledger, before_ms)
            while not stopping.is_set():
                erased = await asyncio.to_thread(next, steps, None)
                if erased is None:
                    break
                conversations += erased.conversations
                reports += len(erased.reports)
                self._forget(erased.reports)
                await asyncio.sleep(PAUSE_S)
        except NexusError as error:
            LOG.warning("old conversations not erased: %s", error.code)
        except Exception as error:
            LOG.warning("old conversations not erased: %s", type(error).__name__, exc_info=True)
        if conversations or reports:
            fields = {"conversations": conversations, "reports": reports}
            LOG.warning("old conversations erased", extra={"fields": fields})
        return conversations

    def _limit_ms(self) -> int | None:
        """Return the time before which a conversation is too old; None while the clock may be wrong."""
        now_ms = self._clock_ms()
        offset_ms = now_ms - self._uptime_ms()
        last_ms = self._offset_ms
        self._offset_ms = offset_ms
        before_ms = now_ms - self._retain_ms
        if last_ms is None:
            newest = next(iter(self._ledger.store.sessions(limit=1)), None)
            if newest is not None and newest.last_ms <= before_ms:
                LOG.warning("everything is older than the proxy retains: nothing is erased within the next hour")
                return None
        elif offset_ms - last_ms > JUMP_MS:
            LOG.warning("the clock jumped forward: nothing is erased within the next hour")
            return None
        return before_ms


def erase_older(ledger: Ledger, before_ms: int) -> Iterator[Erased]:
    """Erase the conversations of proxies whose newest call is from before a time, and the reports that only they had.

    Each step is short; others may write between steps. What a step erased is erased whole, also after a kill. Raises
    LedgerError.
    """
    store = ledger.store
    by_session: defaultdict[str, list[str]] = defaultdict(list)
    for page in pages_of(store, PROXY_CALL):
        old = [report for report in page if report.name < first_id(before_ms)]
        for report in old:
            by_session[str(report.body.get("session", ""))].append(report.name)
        yield Erased()
        if len(old) < len(page):
            break
    conversations, orphans = _found(store, by_session, before_ms)
    is_unfinished = store.document(*MARK) is not None
    if (conversations or orphans) and not is_unfinished:
        store.put_document(*MARK, {})
        is_unfinished = True
    for batch in _batches(conversations):
        yield from _erase(ledger, batch, before_ms)
    for start in range(0, len(orphans), STEP_REPORTS):
        names = orphans[start : start + STEP_REPORTS]
        store.erase([], documents=[(PROXY_CALL, name) for name in names], scrub=False)
        yield Erased(reports=names)
    if is_unfinished:
        ledger.upkeep.scrub()
        store.delete_document(*MARK)
        yield Erased()


def _erase(ledger: Ledger, batch: Sequence[_Conversation], before_ms: int) -> Iterator[Erased]:
    """Erase conversations together, or one by one without those that have to stay."""
    reports = [name for conversation in batch for name in conversation.reports]
    labels = [label for conversation in batch for label in conversation.labels]
    try:
        ledger.upkeep.erase_unused(labels, before_ms, documents=[(PROXY_CALL, name) for name in reports])
    except LedgerError as error:
        if error.code not in ("forks_depend", "session_in_use", "no_such_session"):
            raise
    else:
        yield Erased(len(batch), reports)
        return
    if len(batch) > 1:
        for conversation in batch:
            yield from _erase(ledger, [conversation], before_ms)


def _batches(conversations: Iterable[_Conversation]) -> Iterator[list[_Conversation]]:
    batch: list[_Conversation] = []
    messages = 0
    for conversation in conversations:
        if batch and messages + conversation.messages > STEP_MESSAGES:
            yield batch
            batch = []
            messages = 0
        batch.append(conversation)
        messages += conversation.messages
    if batch:
        yield batch


def _found(
    store: LedgerStore, by_session: dict[str, list[str]], before_ms: int
) -> tuple[list[_Conversation], list[str]]:
    """Return the conversations that are too old, and the reports of calls that no session has.

    A conversation is a thread with all that continue it, and it goes if each session of these is a proxy's. `by_session`:
    old reports by the name that their session had.
    """
    with store.snapshot():
        reports: defaultdict[str, list[str]] = defaultdict(list)
        orphans: list[str] = []
        for name, ids in by_session.items():
            label = store.resolve(name) if name else None
            if label is None:
                orphans += ids
            else:
                reports[label] += ids
        roots: dict[int, int] = {}
        newest_ms: defaultdict[int, int] = defaultdict(int)
        for row in store.threads():  # by number: a thread's parent comes before it
            root = roots[row.id] = roots.get(row.parent or 0, row.id)
            newest_ms[root] = max(newest_ms[root], row.last_ms)
        families: defaultdict[int, list[SessionInfo]] = defaultdict(list)
        for info in store.sessions(every=True):
            families[roots[info.thread]].append(info)
    conversations: list[_Conversation] = []
    for root, sessions in families.items():
        if newest_ms[root] > before_ms or not all(info.label in reports for info in sessions):
            continue
        labels = tuple(info.label for info in sessions)
        names = tuple(name for label in labels for name in reports[label])
        conversations.append(_Conversation(labels, names, sum(info.messages for info in sessions)))
    return conversations, orphans

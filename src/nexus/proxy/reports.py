"""Reports of the calls: in memory for the status, and as documents of the ledger."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from nexus.ledger.documents import PROXY_CALL, pages_of
from nexus.ledger.store import DocumentStore
from nexus.types.decoding import decodable
from nexus.types.request import TokenUsage

MAX_REPORTS = 500
"""Calls that are kept in memory."""

Outcome: TypeAlias = Literal["as_received", "marked", "healed", "fitted", "unread", "refused"]


class CacheReading(Struct, frozen=True):
    """Cache reads of a call, as the provider reported them, and the cause if there were fewer than expected."""

    read_tokens: int
    expected_tokens: int
    """Tokens of the last prompt of the same conversation, at most those of this one; 0 for a first call."""
    cause: str = ""
    """Name of the cause of a miss (`nexus.proxy.cache_misses`); empty if the last prompt was read."""
    detail: str = ""
    """The cause in the words of the comparison with the last prompt."""


class CallReport(Struct, kw_only=True):
    """One call that went through a proxy. It has no text of the conversation and no key."""

    id: str
    at_ms: int
    client: str
    path: str
    format: str = ""
    model: str = ""
    conversation: str = ""
    """The client's own id of the conversation."""
    user: str = ""
    upstream: str = ""
    mode: str = ""
    outcome: Outcome = "as_received"
    """`marked`: only cache breakpoints were added. `unread`: sent as received, because it could not be read or fitted."""
    reasons: list[str] = []
    """What was changed, and why; why a call was not read or not recorded."""
    budget: int = 0
    """Tokens of the budget; 0 without one."""
    tokens: int = 0
    """Tokens of the request as sent, counted; 0 if they were not."""
    received_bytes: int = 0
    sent_bytes: int = 0
    tries: int = 1
    """Requests that were sent upstream: a second one after the provider refused the first as too long."""
    status: int = 0
    """HTTP status of the answer; 0 if there was none."""
    error: str = ""
    """Why there was no whole answer."""
    first_byte_ms: float = 0.0
    """Time from the request's end to the first byte of the answer's body."""
    added_ms: float = 0.0
    """Time that this proxy took before the request was sent."""
    duration_ms: float = 0.0
    usage: TokenUsage | None = None
    """As the provider reported it."""
    cost_usd: float | None = None
    cache: CacheReading | None = None
    """None without reported usage, and for a call that is not recorded."""
    breakpoints: list[int] = []
    """Places of cache breakpoints in the received list (`breakpoint_places`); if the client set none, of those to add."""
    has_own_breakpoints: bool = False
    """The client set them."""
    adds_breakpoints: bool = False
    """This proxy set them."""
    keeps_an_hour: bool = False
    """Its newest breakpoint has the longer lifetime."""
    system_tokens: int = 0
    """Those of `tokens` in the system prompt."""
    tools_tokens: int = 0
    session: str = ""
    """Label of the session that has the call; empty if it is not recorded."""
    thread: int = 0
    turn: int = 0
    number: int = 0
    """Number of the call in its turn."""
    seq: int = 0
    """Entry of the reply on the thread; 0 if it had the reply already."""
    action: str = ""
    """What recording did to the session: `append`, `fork`, `new` or `repeat`."""
    lookups: int = 0
    """Calls of `nexus_omitted` that were answered before the client's answer."""
    omitted: int = 0
    """Messages of the list that were not sent."""
    no_text: bool = False
    """True if no text of it is stored, so that there is no session: then there are two hashes."""
    request_sha256: str = ""
    """Of the body as received."""
    answer_sha256: str = ""
    """Of the body as the upstream sent it, up to its end or break."""
    answer_bytes: int = 0

    @property
    def is_unmarked(self) -> bool:
        """True if nobody set cache breakpoints that the provider caches nothing without."""
        return self.mode == "record" and bool(self.breakpoints) and not self.has_own_breakpoints


def new_id() -> str:
    """Return an id for a call; ids rise with time, and cannot be guessed: who has one may see the call."""
    return f"{first_id(time.time_ns() // 1_000_000)}{secrets.token_hex(8)}"


def first_id(at_ms: int) -> str:
    """Return the beginning of the ids of calls of a time; ids of earlier calls are less than it."""
    return f"{max(at_ms, 0):011x}"


class Reports:
    """The newest reports, and those of the ledger."""

    def __init__(self) -> None:
        self._newest: OrderedDict[str, CallReport] = OrderedDict()

    def add(self, report: CallReport) -> None:
        """Keep a report, which may still change."""
        self._newest[report.id] = report
        while len(self._newest) > MAX_REPORTS:
            self._newest.popitem(last=False)

    def newest(self) -> list[CallReport]:
        """Return the kept reports, newest first."""
        return [*reversed(self._newest.values())]

    def forget(self, call_ids: Iterable[str]) -> None:
        """Drop the reports of calls that were erased."""
        for call_id in call_ids:
            self._newest.pop(call_id, None)

    def get(self, call_id: str) -> CallReport | None:
        """Return a kept report; None if there is none."""
        return self._newest.get(call_id)


def store_report(store: DocumentStore, report: CallReport) -> None:
    """Store a report in the ledger. Raises LedgerError."""
    store.put_document(PROXY_CALL, report.id, msgspec.to_builtins(report))


def stored_report(store: DocumentStore, call_id: str) -> CallReport | None:
    """Return a call's report of the ledger; None if there is none. Raises LedgerError."""
    document = store.document(PROXY_CALL, call_id)
    if document is None:
        return None
    return msgspec.convert(document.body, decodable(CallReport), strict=False)


def stored_reports(store: DocumentStore) -> list[CallReport]:
    """Return all reports of the ledger, oldest first. Raises LedgerError."""
    pages = pages_of(store, PROXY_CALL)
    documents = (document for page in pages for document in page)
    return [msgspec.convert(document.body, decodable(CallReport), strict=False) for document in documents]

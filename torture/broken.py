"""Builds of the ledger, of recovery from overflow, of frames, of clients' lists, of the broker, of the server and of the proxy that are broken on purpose, to prove that the tortures find what they look for.

Each replaces one thing in this process before any ledger is opened; what is forked from it is broken the same way.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nexus.assembly.window_cache import CachedWindow, WindowCache
from nexus.context import AssembledContext
from nexus.engine import overflow
from nexus.engine import overflow_recovery as recovery
from nexus.engine.reported_limits import LearnedLimits
from nexus.errors import LedgerError
from nexus.ledger import chain
from nexus.ledger import maintenance as care
from nexus.ledger.documents import Change
from nexus.ledger.records import MessageRow
from nexus.ledger.sessions import AcceptedEvent, NewQueuedEvent, QueuedEvent, SessionMetadata, event_key
from nexus.ledger.sqlite import SqliteLedger, connection
from nexus.ledger.store import LedgerStore
from nexus.providers import messages as list_reader
from nexus.summarization import summarizer as ladder
from nexus.text.frames import escaping
from nexus.types.ledger_entries import Commit, Committed, Cut
from nexus.types.message import Message, assistant
from nexus.types.request import AgentResult
from torture import broken_identity

_commit = SqliteLedger.commit
_accept_events = SqliteLedger.accept_events
_BROKER = "nexus.broker.broker"
"""Imported by those who run one: a process that forks often is kept small."""


def synchronous_normal() -> None:
    """Commits do not wait for the disk."""
    connection.SYNCHRONOUS = "NORMAL"


def deferred_begin() -> None:
    """A write begins by reading and takes the write lock when it first writes."""
    connection.BEGIN = "BEGIN"


def content_hashes() -> None:
    """An entry's hash covers the content of its messages and nothing else."""

    def digest(before: bytes, tenant: str, entry: chain.EntryColumns, messages: list[MessageRow]) -> bytes:
        del tenant, entry
        return hashlib.sha256(before + "".join(row[7] for row in messages).encode()).digest()

    chain.entry_hash = digest


def copied_backup() -> None:
    """A backup is a copy of the file."""

    def copied(source: Path | str, target: Path | str, *_: object, **__: object) -> None:
        shutil.copy(source, target)

    care.backup = copied  # pyright: ignore[reportAttributeAccessIssue]


def forgotten_keys() -> None:
    """An idempotency key that was used is stored and never looked at."""

    def commit(self: SqliteLedger, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        known = self.known_keys(session) if self.thread_of(session) is not None else {}
        new = [replace(one, keys=tuple(key for key in one.keys if key not in known)) for one in commit.entries]
        return _commit(self, session, replace(commit, entries=tuple(new)), metadata)

    SqliteLedger.commit = commit


def split_commits() -> None:
    """Each entry of a commit has a transaction of its own."""

    def commit(self: SqliteLedger, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        added = sum(_commit(self, session, Commit((entry,)), metadata).added for entry in commit.entries[:-1])
        done = _commit(self, session, replace(commit, entries=commit.entries[-1:]), metadata)
        return replace(done, added=done.added + added)

    SqliteLedger.commit = commit


def split_acceptance() -> None:
    """Events that are accepted together are stored one by one."""

    def accept(self: SqliteLedger, events: Sequence[NewQueuedEvent]) -> list[AcceptedEvent]:
        return [accepted for event in events for accepted in _accept_events(self, [event])]

    SqliteLedger.accept_events = accept


def unexpected_marks() -> None:
    """A compaction is stored whatever mark came before it."""

    def commit(self: SqliteLedger, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        return _commit(self, session, replace(commit, expected_checkpoint=None), metadata)

    SqliteLedger.commit = commit


def swallowed_errors() -> None:
    """A commit that fails is acknowledged."""

    def commit(self: SqliteLedger, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        try:
            return _commit(self, session, commit, metadata)
        except LedgerError:
            return Committed(1, 0, 0, 0)

    SqliteLedger.commit = commit


def assumed_cuts() -> None:
    """An engine goes on with the window after its own cut, whatever cut another process stored first."""
    is_extended = WindowCache._is_extended  # noqa: SLF001 - nothing public decides this

    def assumed(
        self: WindowCache, store: Any, cached: CachedWindow, thread: int, view: Any, cut: Cut | None, **options: bool
    ) -> bool:
        is_same_number = cut is not None and cached.cut is not None and cut.number == cached.cut.number
        return is_extended(self, store, cached, thread, view, cached.cut if is_same_number else cut, **options)

    _replace(WindowCache, "_is_extended", assumed)


def equal_retries() -> None:
    """A call that did not fit is sent again as it was."""

    def smaller(self: Any, ctx: AssembledContext, verdict: Any) -> Any:
        yield from ()
        del verdict
        if len(self.attempts) >= recovery.MOST_CALLS:
            raise recovery.ContextOverflow(self.attempts, "it did not fit")
        return ctx

    _replace(recovery, "_Recovery.smaller_context", smaller)


def forgotten_limits() -> None:
    """What a provider told of its limit is not remembered."""

    def learn(self: LearnedLimits, model: str, tokens: int) -> None:
        del self, model, tokens

    _replace(LearnedLimits, "learn", learn)


def trusted_replies() -> None:
    """A reply is taken for an answer whatever its usage and stop reason say."""

    def silent(*_: object, **__: object) -> None:
        return None

    _replace(overflow, "detect_silent_overflow", silent)


def recorded_failures() -> None:
    """Each call that did not fit is stored as a failed turn."""
    tried = _attribute(recovery, "_Recovery.smaller_context")

    def smaller(self: Any, ctx: AssembledContext, verdict: Any) -> AssembledContext:
        self.nx.record(ctx, AgentResult((), error="it did not fit"))
        return tried(self, ctx, verdict)

    _replace(recovery, "_Recovery.smaller_context", smaller)


def untiring_ladder() -> None:
    """A summariser that fails is asked again, twenty times for each part, and never left alone."""
    ask_once = _attribute(ladder, "_CompactionRun.ask_model")

    def by_model(self: Any, *arguments: Any) -> str:
        return next((text for text in (ask_once(self, *arguments) for _ in range(20)) if text), "")

    _replace(ladder, "FAILURES", 1 << 30)
    _replace(ladder, "_CompactionRun.ask_model", by_model)


def believed_summaries() -> None:
    """A model's summary is stored as it came."""

    def audit(*_: object, **__: object) -> dict[str, str]:
        return {}

    _replace(ladder, "check_summary", audit)


def plain_marks() -> None:
    """Marks are looked for in ASCII only: look-alikes and what is unseen are let through."""
    skeleton_of = escaping.skeleton

    def ascii_skeleton(char: str) -> str | None:
        return skeleton_of(char) if char.isascii() else None

    _replace(escaping, "skeleton", ascii_skeleton)


def single_backslashes() -> None:
    """A mark that has two backslashes already gets no third one."""
    found = escaping.spans

    def spans(text: str) -> Iterator[escaping.TagSpan]:
        return (place for place in found(text) if place.run < 2)

    _replace(escaping, "spans", spans)


def unpaired_results() -> None:
    """Results of a client's list whose ids no call has are not paired by their order."""

    def unpaired(messages: Sequence[Message], known_ids: object = ()) -> list[Message]:
        del known_ids
        return [*messages]

    _replace(list_reader, "pair_results", unpaired)


def single_results() -> None:
    """Of several results in a row only the first is read."""
    pair = list_reader.pair_results

    def first_alone(messages: Sequence[Message], known_ids: Collection[str] = ()) -> list[Message]:
        paired = pair(messages, known_ids)
        return [
            replace(after, parts=()) if before.role == after.role == "tool" else after
            for before, after in pairwise([assistant(""), *paired])
        ]

    _replace(list_reader, "pair_results", first_alone)


def early_acceptance() -> None:
    """A broker returns an event before it is stored."""
    broker = import_module(_BROKER)
    submit, result = _attribute(broker, "Broker._submit"), _attribute(broker, "Broker.result")
    storing: dict[str, asyncio.Task[None]] = {}

    async def store_later(*arguments: Any) -> None:
        await asyncio.sleep(0.02)
        await submit(*arguments)

    async def early(self: Any, body: Any, session: str | None, *rest: Any) -> QueuedEvent:
        storing[body.event.id] = asyncio.ensure_future(store_later(self, body, session, *rest))
        return QueuedEvent(event_key(body.event.id, session or "", ""), session or "", 0, "queued", "")

    async def late(self: Any, event_id: str, **options: Any) -> Any:
        if event_id in storing:
            await storing[event_id]
        return await result(self, event_id, **options)

    _replace(broker, "Broker._submit", early)
    _replace(broker, "Broker.result", late)


def renamed_repeats() -> None:
    """An event that is delivered again gets another id."""
    broker = import_module(_BROKER)
    submit = _attribute(broker, "Broker._submit")

    async def renamed(self: Any, body: Any, *rest: Any) -> Any:
        event = body.event
        is_known = bool(self._store.events_with_id(event.id)) and event.source == "human"
        other = replace(event, id=f"{event.id} again") if is_known else event
        return await submit(self, replace(body, event=other), *rest)

    _replace(broker, "Broker._submit", renamed)


def early_settlement() -> None:
    """An event is settled before its turn runs."""
    broker = import_module(_BROKER)
    run_batch = _attribute(broker, "Broker._run_batch")

    def settle(store: Any, label: str, keys: list[str]) -> None:
        thread = store.thread_of(label)
        turn = 1 if thread is None else store.thread(thread).turn + 1
        store.update_events(keys, "done", expected=("running",), turn=turn)

    async def run(self: Any, label: str, batch: Sequence[Any], lease: Any) -> Any:
        await self.nx.run(settle, self._store, label, [row.row.key for row in batch])
        return await run_batch(self, label, batch, lease)

    _replace(broker, "Broker._run_batch", run)


def late_delivery() -> None:
    """A worker's event is settled before its manager has the report."""
    broker = import_module(_BROKER)
    finish, deliver = _attribute(broker, "Broker._finish"), _attribute(broker, "Broker._deliver")

    async def no_delivery(*_: Any) -> None:
        return

    async def settled(self: Any, rows: Sequence[Any], end: Any, reason: str) -> None:
        await finish(self, rows, end, reason)
        for row in rows:
            await deliver(self, row, end.text, reason)

    _replace(broker, "Broker._finish", settled)
    _replace(broker, "Broker._deliver", no_delivery)


def new_workers() -> None:
    """A call that runs again spawns another worker."""
    workers = import_module("nexus.agents.workers")
    order_of = workers.worker_order

    def order(*arguments: Any, **options: Any) -> Any:
        made = order_of(*arguments, **options)
        label = f"{made.session}{os.getpid()}"
        return replace(made, session=label, event=replace(made.event, id=f"{label}:task"))

    _replace(workers, "worker_order", order)


def unleased_sessions() -> None:
    """Processes run a session at the same time, and nothing checks whose turn it is."""

    @asynccontextmanager
    async def unleased(*_: object, **__: object) -> AsyncGenerator[None]:
        yield

    def check(self: Any, session: str, commit: Any, thread: Any) -> None:
        del self, session, commit, thread

    def pass_fence(self: Any, session: str, commit: Any) -> int:
        del self, session
        return commit.fence or 0

    _replace(import_module(_BROKER), "async_session_lease", unleased)
    _replace(import_module("nexus.ledger.shared_sql.write"), "Writing._check_expectations", check)
    _replace(import_module("nexus.ledger.shared_sql.write"), "Writing._pass_fence", pass_fence)


def forgotten_settings() -> None:
    """The server stores its agents without their system prompts, which are in its memory alone."""
    agents, prompts = import_module("nexus.server.agents"), dict[str, str]()
    decode, change_document = agents.decode_agent, agents.change_document

    def with_prompt(document: dict[str, Any]) -> Any:
        agent = decode(document)
        prompt = agent.settings.system or prompts.get(agent.agent_id, "")
        return replace(agent, settings=replace(agent.settings, system=prompt))

    def change(store: LedgerStore, kind: str, name: str, changed: Change) -> Any:
        def without_prompt(document: dict[str, Any] | None) -> dict[str, Any]:
            new = changed(document)
            prompts[name] = new["settings"].pop("system_prompt", None) or prompts.get(name, "")
            return new

        return change_document(store, kind, name, without_prompt)

    _replace(agents, "decode_agent", with_prompt)
    _replace(agents, "change_document", change)


def unresumed_requests() -> None:
    """A broker that starts leaves the events that an earlier process accepted."""

    async def enter(self: Any) -> Any:
        self._tasks.are_open = True
        return self

    _replace(import_module(_BROKER), "Broker.__aenter__", enter)


def renamed_requests() -> None:
    """Each process of the server has its own names for requests, so a repeated one runs again."""
    methods = import_module("nexus.server.methods")
    event_id = methods.event_id

    def renamed(agent_id: str, request_id: Any) -> str:
        return event_id(agent_id, f"{request_id} in process {os.getpid()}")

    _replace(methods, "event_id", renamed)


def unheld_ends() -> None:
    """A proxy sends the end of an answer before it has recorded the call."""
    recording = import_module("nexus.proxy.recording")
    add = _attribute(recording, "AnswerRecord.add")

    def whole(self: Any, piece: bytes) -> bytes:
        return add(self, piece) + self.rest()

    _replace(recording, "AnswerRecord.add", whole)
    _delay_records(recording)


def unawaited_records() -> None:
    """A proxy ends an answer while its call is still being recorded."""
    recording = import_module("nexus.proxy.recording")
    _replace(recording, "HOLD_S", 0.0)
    _delay_records(recording)


def _delay_records(recording: Any) -> None:
    """Let a proxy record a call a moment later, so that a kill comes before."""
    record = _attribute(recording, "AnswerRecord._record")

    async def late(self: Any) -> None:
        await asyncio.sleep(0.2)
        await record(self)

    _replace(recording, "AnswerRecord._record", late)


def mixed_conversations() -> None:
    """A proxy knows conversations by their texts alone, whatever id the client has for them."""
    app = import_module("nexus.proxy.app")
    place_of = app.place_of

    def nameless(*arguments: Any) -> Any:
        return replace(place_of(*arguments), conversation="")

    _replace(app, "place_of", nameless)


def _attribute(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name)
    return owner


def _replace(owner: Any, path: str, by: Any) -> None:
    """Replace an attribute of a module or class, which has to exist."""
    *within, name = path.split(".")
    assert hasattr(_attribute(owner, ".".join(within)) if within else owner, name), path
    setattr(_attribute(owner, ".".join(within)) if within else owner, name, by)


BUILDS: dict[str, Callable[[], None]] = {
    build.__name__: build
    for build in (
        synchronous_normal,
        deferred_begin,
        content_hashes,
        copied_backup,
        forgotten_keys,
        split_commits,
        split_acceptance,
        unexpected_marks,
        swallowed_errors,
        assumed_cuts,
        equal_retries,
        forgotten_limits,
        trusted_replies,
        recorded_failures,
        untiring_ladder,
        believed_summaries,
        plain_marks,
        single_backslashes,
        unpaired_results,
        single_results,
        early_acceptance,
        renamed_repeats,
        early_settlement,
        late_delivery,
        new_workers,
        unleased_sessions,
        forgotten_settings,
        unresumed_requests,
        renamed_requests,
        unheld_ends,
        unawaited_records,
        mixed_conversations,
        *broken_identity.BUILDS,
    )
}

APPLIED: list[str] = []
"""Names of the builds of this process. Commands that it starts, such as `nexus serve`, are broken the same way."""


def apply(name: str) -> None:
    """Break this process, and the commands that it starts from now on."""
    BUILDS[name]()
    APPLIED.append(name)

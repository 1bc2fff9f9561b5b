"""Checks of the queue of accepted events: each key once, in order of acceptance, changed by compare and set."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from nexus.errors import BadReference, LedgerDamaged, LedgerError, LedgerUnusable
from nexus.ledger import chain
from nexus.ledger.records import EventRecord, Header, Record
from nexus.ledger.sessions import (
    EVENT_STATES,
    AcceptedEvent,
    Alias,
    NewQueuedEvent,
    NewRefUpdate,
    QueuedEvent,
    event_key,
)
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.store import LedgerStore
from nexus.testing.ledger_conformance.harness import (
    HOSTILE,
    START_MS,
    LedgerCase,
    append,
    equal,
    holds,
    raises,
    rename,
    texts,
    together,
)


def accept(store: LedgerStore, session: str, *ids: str) -> list[QueuedEvent]:
    """Accept events of a session, each with a body that follows from its id."""
    events = [NewQueuedEvent(id_, session, f'{{"text":"{id_}"}}') for id_ in ids]
    return [accepted.event for accepted in store.accept_events(events)]


def keys(session: str, *ids: str, principal: str = "") -> list[str]:
    """Return the keys of events of a session."""
    return [event_key(id_, session, principal) for id_ in ids]


def ids(events: list[QueuedEvent]) -> list[str]:
    """Return the ids of events, in order."""
    return [event.id for event in events]


def _events(store: LedgerStore) -> list[EventRecord]:
    return [record for record in store.dump() if isinstance(record, EventRecord)]


# accepting ------------------------------------------------------------------------------------------------------------


def check_accepted_events(case: LedgerCase) -> None:
    """Accepted events are numbered in order over all sessions, and read back as they were given."""
    store = case.store
    new = [
        NewQueuedEvent("e1", "main", '{"text":"hi"}'),
        NewQueuedEvent(HOSTILE, HOSTILE, HOSTILE, accepted_ms=5),
        NewQueuedEvent("late", "main", "{}", "dropped", HOSTILE),
    ]
    first, hostile, late = (event_key(event.id, event.session, "") for event in new)
    wanted = [
        QueuedEvent(first, "main", 1, "queued", '{"text":"hi"}', "", 0, START_MS, START_MS),
        QueuedEvent(hostile, HOSTILE, 2, "queued", HOSTILE, "", 0, 5, START_MS),
        QueuedEvent(late, "main", 3, "dropped", "{}", HOSTILE, 0, START_MS, START_MS),
    ]
    equal(store.accept_events(new), [AcceptedEvent(event, added=True) for event in wanted], "the accepted events")
    equal([store.queued_event(event.key) for event in wanted], wanted, "the events by key")
    equal(ids(wanted), [event.id for event in new], "their ids")
    equal([store.events_with_id(event.id) for event in new], [[event] for event in wanted], "the events by id")
    equal(store.queued_events(), wanted[:2], "the events to be answered")
    equal(store.queued_events(HOSTILE), [wanted[1]], "those of the session with a hostile label")
    equal((store.queued_event("other"), store.sessions(every=True)), (None, []), "what else is there")
    equal(accept(store, "main", "e4")[0].number, 4, "the number of the next event")


def check_known_events(case: LedgerCase) -> None:
    """An event whose key is known adds nothing, whatever its body and state."""
    store = case.store
    (first,) = accept(store, "main", "e")
    repeat = NewQueuedEvent("e", "main", "another body")
    new = NewQueuedEvent("new", "main", "one")
    results = store.accept_events([repeat, new, replace(new, body="two")])
    added = [(accepted.event.body, accepted.added) for accepted in results]
    equal(added, [(first.body, False), ("one", True), ("one", False)], "bodies, and what was added")
    equal(results[0].event, first, "the known event")
    (answered,) = store.update_events([first.key], "done", expected=["queued"], turn=7)
    equal(store.accept_events([repeat]), [AcceptedEvent(answered, added=False)], "a known event that is done")
    equal(ids(store.queued_events()), ["new"], "the events to be answered")
    equal(store.accept_events([]), [], "no event")


def check_refused_events(case: LedgerCase) -> None:
    """Events without an id, or with an unknown state, are refused with all others of their call."""
    store = case.store
    good = NewQueuedEvent("good", "main", "{}")
    for wrong in (replace(good, id=""), NewQueuedEvent("bad", "main", "{}", "no state")):  # pyright: ignore[reportArgumentType]
        with raises(BadReference, f"accepting {wrong}", code="bad_entry"):
            store.accept_events([good, wrong])
    accept(store, "main", "e")
    for states in (("no state", ("queued",)), ("done", ("no state",))):
        with raises(BadReference, f"an update with the states {states}", code="bad_entry"):
            store.update_events(["e"], states[0], expected=states[1])  # pyright: ignore[reportArgumentType]
    with raises(BadReference, "a list of an unknown state", code="bad_entry"):
        store.queued_events(states=("no state",))  # pyright: ignore[reportArgumentType]
    equal([(event.id, event.state) for event in store.queued_events()], [("e", "queued")], "what is stored")


def check_events_accepted_at_once(case: LedgerCase) -> None:
    """Of eight threads on two stores that accept the same events at once, one adds each, and all get its row."""
    stores = (case.store, case.open())
    new = [NewQueuedEvent(f"e{number}", "main", "{}") for number in range(20)]
    accepted: list[AcceptedEvent] = []

    def call(worker: int) -> Callable[[], object]:
        order = new[worker:] + new[:worker]
        return lambda: [accepted.extend(stores[worker % 2].accept_events([event])) for event in order]

    for result in together(*(call(worker) for worker in range(8))):
        holds(not isinstance(result, Exception), f"expected no error, found {result!r}")
    added = sorted(answer.event.id for answer in accepted if answer.added)
    equal(added, sorted(event.id for event in new), "the ids that were added")
    equal(len({(answer.event.id, answer.event.number) for answer in accepted}), 20, "how many rows there are")
    equal([event.number for event in case.store.queued_events()], list(range(1, 21)), "the numbers")


# keys -----------------------------------------------------------------------------------------------------------------


def check_ids_of_two_sessions(case: LedgerCase) -> None:
    """Equal ids in two sessions are two events, and are changed and answered apart."""
    store = case.store
    pair = "\ud83d\ude00"
    sessions = ("main", "other", HOSTILE, "\U0001f600", pair)
    results = store.accept_events([NewQueuedEvent("e", session, session) for session in sessions])
    equal([result.added for result in results], [True] * 5, "what was added")
    events = [result.event for result in results]
    equal(store.events_with_id("e"), events, "the events with the id")
    equal([store.queued_events(session) for session in sessions], [[event] for event in events], "of each session")
    store.update_events([events[1].key], "done", expected=["queued"])
    equal([event.session for event in store.queued_events()], ["main", *sessions[2:]], "those that are still queued")
    repeats = store.accept_events([NewQueuedEvent("e", session, "again") for session in sessions])
    equal([result.added for result in repeats], [False] * 5, "what was added the second time")


def check_ids_of_two_principals(case: LedgerCase) -> None:
    """Equal ids of two principals in one session are two events."""
    new = [NewQueuedEvent("e", "main", who, principal=who) for who in ("", "ann", "bob", HOSTILE)]
    for is_new in (True, False):
        results = case.store.accept_events(new)
        equal([result.added for result in results], [is_new] * 4, "what was added")
        equal([result.event.body for result in results], ["", "ann", "bob", HOSTILE], "the events")
    equal([event.id for event in case.store.events_with_id("e")], ["e"] * 4, "the ids of all")
    equal(
        [result.event.key for result in results], [event_key("e", "main", event.principal) for event in new], "the keys"
    )


def check_events_with_an_id(case: LedgerCase) -> None:
    """The events with an id are those with exactly this id, by number and in any state."""
    store = case.store
    others = ("e1", "e\x1f", "e\x1fmore", "e ", "", "E", event_key("e", "main", ""))
    accept(store, "main", *filter(None, others))
    wanted = [accept(store, session, "e")[0] for session in ("z", "a", "main")]
    (wanted[1],) = store.update_events([wanted[1].key], "failed", expected=["queued"])
    equal(store.events_with_id("e"), wanted, "the events with the id")
    for id_ in others:
        equal(ids(store.events_with_id(id_)), [id_] if id_ else [], f"the events with the id {id_!r}")


def check_events_under_both_names(case: LedgerCase) -> None:
    """An event of a renamed session is known under each of its names, however often it was renamed."""
    store = case.store
    append(store, "first", "one")
    (first,) = accept(store, "first", "e")
    rename(store, "first", "second")
    (second,) = accept(store, "second", "f")
    rename(store, "second", "third")
    store.update_refs([], [Alias("nick", "third", "")])
    for name in ("first", "second", "third", "nick"):
        results = store.accept_events([NewQueuedEvent(id_, name, "again") for id_ in ("e", "f")])
        equal(
            [(result.event.number, result.added) for result in results], [(1, False), (2, False)], f"events of {name}"
        )
    equal([first.session, second.session], ["first", "second"], "the sessions when they were accepted")
    equal([event.session for event in store.queued_events()], ["third", "third"], "their session now")


def check_keys_of_earlier_versions(case: LedgerCase) -> None:
    """An event that an earlier version stored has its id as its key, and is known for its session only."""
    store = case.store
    append(store, "main", "one")
    before = [old_event(store.tenant, id_, number, "main") for number, id_ in enumerate(("e", "f\x1fg"), 1)]
    store.load([Header(tenant=store.tenant), *before])
    rename(store, "main", "new name")
    for id_ in ("e", "f\x1fg"):
        new = [NewQueuedEvent(id_, name, "again", principal=who) for name, who in (("main", ""), ("new name", "ann"))]
        results = store.accept_events([*new, NewQueuedEvent(id_, "other", "again")])
        equal([result.added for result in results], [False, False, True], f"what was added with the id {id_!r}")
        equal([result.event.key for result in results[:2]], [id_, id_], "the keys of the known event")
        equal(len(store.events_with_id(id_)), 2, "how many events have the id")
    (changed,) = store.update_events(["e"], "done", expected=["queued"])
    equal(store.queued_event("e"), changed, "the event after a change")


def old_event(tenant: str, id_: str, number: int, session: str) -> EventRecord:
    """Return a queued event as an earlier version stored it: by its id, with a hash of what never changes."""
    columns = (id_, session, number, "{}", START_MS)
    digest = sha256(msgspec.msgpack.encode(("nexus-event-1", tenant, columns))).digest()
    return EventRecord(id_, session, number, "queued", "{}", "", 0, START_MS, START_MS, digest)


# changing -------------------------------------------------------------------------------------------------------------


def check_changed_events(case: LedgerCase) -> None:
    """Only events in an expected state change; their number, body and time of acceptance stay."""
    store = case.store
    before = accept(store, "main", "a", "b", "c")
    a, b, c = (event.key for event in before)
    case.clock.now_ms += 9
    changed = store.update_events([c, a, a, "b", "unknown"], "running", expected=["queued"])
    wanted = [replace(event, state="running", changed_ms=START_MS + 9) for event in (before[0], before[2])]
    equal(changed, wanted, "the changed events, by number")
    equal(store.update_events([a], "running", expected=["queued"]), [], "a second start of the same event")
    ends = store.update_events([a, b], "failed", expected=["running", "done"], reason=HOSTILE, turn=3)
    equal(ends, [replace(wanted[0], state="failed", reason=HOSTILE, turn=3)], "the event that failed")
    equal([store.queued_event(a), store.queued_event(b)], [ends[0], before[1]], "what is stored")
    requeued = store.update_events([a, c], "queued", expected=["failed", "running"])
    equal(
        [(event.reason, event.turn, event.state) for event in requeued], [("", 0, "queued")] * 2, "events queued again"
    )
    equal(store.update_events([], "done", expected=["queued"]), [], "an update of no event")
    equal(store.update_events([a], "done", expected=[]), [], "an update that expects no state")


def check_one_start_at_once(case: LedgerCase) -> None:
    """Of eight threads that start the same event, one does."""
    (event,) = accept(case.store, "main", "e")
    stores = (case.store, case.open())
    started: list[QueuedEvent] = []

    def call(worker: int) -> Callable[[], object]:
        return lambda: started.extend(stores[worker % 2].update_events([event.key], "running", expected=["queued"]))

    for result in together(*(call(worker) for worker in range(8))):
        holds(not isinstance(result, Exception), f"expected no error, found {result!r}")
    equal(ids(started), ["e"], "the starts")


def check_finished_events(case: LedgerCase) -> None:
    """Finished events are deleted when they are old enough; others stay, and a deleted id is new again."""
    store = case.store
    accept(store, "main", "done", "failed", "dropped", "queued", "running", "new")
    for state in ("done", "failed", "dropped", "running"):
        store.update_events(keys("main", state), state, expected=["queued"])
    case.clock.now_ms += 1_000
    store.update_events(keys("main", "new"), "done", expected=["queued"])
    equal(store.delete_finished_events(1_000), 0, "how many are older than a second")
    case.clock.now_ms += 1
    equal(case.open("other").delete_finished_events(1_000), 0, "how many another tenant deleted")
    equal(store.delete_finished_events(1_000), 3, "how many are older than a second a moment later")
    remaining = store.queued_events(states=("queued", "running", "done", "failed", "dropped"))
    equal(ids(remaining), ["queued", "running", "new"], "the events that are left")
    (accepted,) = store.accept_events([NewQueuedEvent("done", "main", "{}")])
    holds(accepted.added, "expected a deleted id to be new again, found it known")


# reading --------------------------------------------------------------------------------------------------------------


def check_listed_events(case: LedgerCase) -> None:
    """Events are listed by number, by session and state; sessions with open events by their first one."""
    store = case.store
    for number, session in enumerate(("b", "a", "b", "c", "a", "d")):
        accept(store, session, f"{session}{number}")
    store.update_events(keys("c", "c3"), "done", expected=["queued"])
    store.update_events(keys("a", "a4"), "running", expected=["queued"])
    store.update_events(keys("b", "b0"), "failed", expected=["queued"])
    lists: dict[str, tuple[list[str], list[str]]] = {
        "all": (ids(store.queued_events()), ["a1", "b2", "a4", "d5"]),
        "of a": (ids(store.queued_events("a")), ["a1", "a4"]),
        "of nobody": (ids(store.queued_events("nobody")), []),
        "running": (ids(store.queued_events(states=["running"])), ["a4"]),
        "of b in any state": (ids(store.queued_events("b", ["failed", "queued", "done"])), ["b0", "b2"]),
        "in no state": (ids(store.queued_events(states=())), []),
        "sessions": (store.queued_sessions(), ["a", "b", "d"]),
    }
    for what, (actual, wanted) in lists.items():
        equal(actual, wanted, f"the events: {what}")


def check_events_of_renamed_sessions(case: LedgerCase) -> None:
    """Events follow their session: by its new label, its earlier ones and its aliases."""
    store = case.store
    append(store, "old", "one")
    append(store, "other", "two")
    store.update_refs([], [Alias("nick", "old", "")])
    accept(store, "old", "e1")
    accept(store, "nick", "e2")
    accept(store, "later", "e3")
    accept(store, "other", "e4")
    store.update_refs(
        [NewRefUpdate("new", 1, "renamed"), NewRefUpdate("old", None, "renamed")],
        [Alias("nick", "new", "renamed"), Alias("old", "new", "renamed")],
    )
    store.update_refs([], [Alias("later", "nick", "the same one")])
    for name in ("new", "old", "nick", "later"):
        events = [(event.id, event.session) for event in store.queued_events(name)]
        equal(events, [("e1", "new"), ("e2", "new"), ("e3", "new")], f"the events of {name}")
    equal(store.queued_sessions(), ["new", "other"], "the sessions")
    (repeated,) = accept(store, "new", "e1")
    equal((repeated.number, repeated.session), (1, "new"), "an event that was delivered again after the renaming")
    (changed,) = store.update_events(keys("old", "e1"), "running", expected=["queued"])
    equal(changed.session, "new", "the session of an event that started")
    store.update_refs([], [Alias("later", None, "taken back")])
    equal(ids(store.queued_events("new")), ["e1", "e2"], "the events after an alias was removed")
    equal(ids(store.queued_events("later")), ["e3"], "the events of the removed alias")


def check_events_of_archived_sessions(case: LedgerCase) -> None:
    """A session keeps its events when it is moved, and a retired label keeps those that no alias leads away."""
    store = case.store
    append(store, "main", "one")
    accept(store, "main", "e")
    store.fork("main", "main", 0)
    equal(ids(store.queued_events("main")), ["e"], "the events after a rewind")
    store.update_refs([NewRefUpdate("main", None, "retired")])
    equal((ids(store.queued_events("main")), store.queued_sessions()), (["e"], ["main"]), "the events after retiring")


def check_events_of_tenants(case: LedgerCase) -> None:
    """No tenant sees or changes another one's events, and equal keys do not meet."""
    other = case.open("other")
    (event,) = accept(case.store, "main", "e")
    visible = (other.queued_event(event.key), other.events_with_id("e"), other.queued_events(), other.queued_sessions())
    equal((*visible, list(other.dump())), (None, [], [], [], [Header(tenant="other")]), "what another tenant sees")
    equal(other.update_events([event.key], "done", expected=["queued"]), [], "what it changes")
    equal(other.erase([], events=[event.key]).threads, (), "what it erases")
    equal(accept(other, "main", "e")[0].number, 1, "the number of its own event")
    other.erase(None)
    equal((ids(other.queued_events()), ids(case.store.queued_events())), ([], ["e"]), "the events after it erased all")


# storage --------------------------------------------------------------------------------------------------------------


def check_events_opened_again(case: LedgerCase) -> None:
    """Accepted events and their states are intact after closing and opening again."""
    if not case.backend.durable:
        return
    accept(case.store, "main", "a", "b")
    case.store.update_events(keys("main", "a"), "running", expected=["queued"])
    before = case.store.queued_events()
    case.close()
    reopened = case.open()
    equal(reopened.queued_events(), before, "the events")
    (accepted,) = reopened.accept_events([NewQueuedEvent("a", "main", "{}")])
    holds(not accepted.added, "expected a known event, found it added again")


def check_erased_events(case: LedgerCase) -> None:
    """Erasing a session deletes its events, under its earlier names too; others stay."""
    store = case.store
    append(store, "old", "one")
    accept(store, "old", "secret 1")
    rename(store, "old", "new")
    accept(store, "nick", "secret 2")
    store.update_refs([], [Alias("nick", "new", "")])
    accept(store, "new", "secret 3")
    accept(store, "kept", "harmless")
    store.update_events(keys("old", "secret 1"), "done", expected=["queued"])
    store.erase([1], ["new"])
    equal([record.id for record in _events(store)], keys("kept", "harmless"), "the events that are left")
    store.erase(None)
    equal(_events(store), [], "the events after everything was erased")


def check_events_erased_by_key(case: LedgerCase) -> None:
    """Erasing events by key deletes these, in any state, and no other: their ids are new again."""
    store = case.store
    accept(store, "main", "secret", "kept", "answered")
    accept(store, "other", "secret")
    store.update_events(keys("main", "answered"), "done", expected=["queued"])
    equal(store.erase([], events=[*keys("main", "secret", "answered"), "unknown"]).threads, (), "the threads erased")
    equal([record.id for record in _events(store)], [*keys("main", "kept"), *keys("other", "secret")], "what is left")
    (accepted,) = store.accept_events([NewQueuedEvent("secret", "main", "{}")])
    holds(accepted.added, "expected an erased id to be new again, found it known")


def check_records_of_events(case: LedgerCase) -> None:
    """Events are the last records of a dump, by number; they are loaded once, and keep the state that the store has."""
    source = SqliteLedger(":memory:", clock_ms=case.clock)
    append(source, "main", "one")
    source.accept_events([NewQueuedEvent(id_, "main", HOSTILE) for id_ in ("z", "a", HOSTILE)])
    source.update_events(keys("main", "a"), "failed", expected=["queued"], reason=HOSTILE, turn=2)
    records = list(source.dump())
    equal([record.number for record in records[-3:] if isinstance(record, EventRecord)], [1, 2, 3], "the last records")
    equal(case.store.load(records), len(records) - 1, "how many records were new")
    equal(list(case.store.dump()), records, "the records of the copy")
    equal(case.store.queued_events(), source.queued_events(), "the events of the copy")
    (z,) = keys("main", "z")
    case.store.update_events([z], "done", expected=["queued"])
    equal(case.store.load(records), 0, "how many records were new the second time")
    event = case.store.queued_event(z)
    equal(event.state if event else "", "done", "the state of an event that went on since")


def check_conflicting_events(case: LedgerCase) -> None:
    """Records of other events at the same number or key are refused as a whole."""
    accept(case.store, "main", "e1", "e2")
    before = list(case.store.dump())
    for place, new in enumerate((("new", "e2"), ("e1", "other"))):
        other = SqliteLedger(":memory:", clock_ms=case.clock)
        accept(other, "main", *new)
        with raises(LedgerError, f"loading queue {place}", code="ledger_conflict"):
            case.store.load(other.dump())
        equal(list(case.store.dump()), before, "what is stored")


def check_damaged_events(case: LedgerCase) -> None:
    """An event that does not match its hash is never served or changed."""
    source = SqliteLedger(":memory:", clock_ms=case.clock)
    accept(source, "main", "fine", "bad")
    fine, bad = keys("main", "fine", "bad")
    for tenant, changes in {"body": {"body": "{}"}, "state": {"state": "failed"}, "reason": {"reason": "no"}}.items():
        store = case.open(tenant)
        records = (_of_tenant(record, tenant) for record in source.dump())
        store.load(
            replace(row, **changes) if isinstance(row, EventRecord) and row.id == bad else row for row in records
        )
        calls: dict[str, Callable[[], object]] = {
            "reading": lambda store=store: store.queued_event(bad),
            "reading by id": lambda store=store: store.events_with_id("bad"),
            "listing": lambda store=store: store.queued_events(states=EVENT_STATES),
            "accepting again": lambda store=store: accept(store, "main", "bad"),
            "changing": lambda store=store: store.update_events([fine, bad], "done", expected=EVENT_STATES),
        }
        for what, call in calls.items():
            with raises(LedgerDamaged, f"{what} an event of another {tenant}"):
                call()
        other = store.queued_event(fine)
        equal(other.state if other else "", "queued", "the state of the other event")


def _of_tenant(record: Record, tenant: str) -> Record:
    """Return a record of the queue as this tenant's."""
    if isinstance(record, EventRecord):
        return replace(record, hash=chain.event_hash(tenant, record))
    if isinstance(record, Header):
        return replace(record, tenant=tenant)
    return record


def check_events_of_a_closed_store(case: LedgerCase) -> None:
    """Every call of the queue on a closed store raises LedgerUnusable."""
    store = case.open()
    (event,) = accept(store, "main", "e")
    store.close()
    calls: dict[str, Callable[[], object]] = {
        "accept_events": lambda: accept(store, "main", "e"),
        "update_events": lambda: store.update_events([event.key], "done", expected=["queued"]),
        "delete_finished_events": lambda: store.delete_finished_events(0),
        "queued_event": lambda: store.queued_event(event.key),
        "events_with_id": lambda: store.events_with_id("e"),
        "queued_events": store.queued_events,
        "queued_sessions": store.queued_sessions,
    }
    for method, call in calls.items():
        with raises(LedgerUnusable, f"{method} on a closed store", code="ledger_closed"):
            call()
    equal((ids(case.store.queued_events()), texts(case.store, "main")), (["e"], []), "what another store reads")

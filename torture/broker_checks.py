"""Checks of a ledger that brokers shared. They read its tables, and use nothing of the broker or of the engine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from nexus.ledger.sessions import event_id
from torture.brokers import ACCEPTED, FAILURE, TOLD, Queue
from torture.figures import require

QUEUED: Final = "kills with events queued"
MARKED: Final = "kills with an event taken whose turn had not begun"
CALLING: Final = "kills with a call of the model open"
IN_TOOLS: Final = "kills with tools or workers running"
SETTLING: Final = "kills with a turn ended whose event was not settled"
STAGES: Final = (QUEUED, MARKED, CALLING, IN_TOOLS, SETTLING)

PENDING: Final = ("queued", "running")
SUMMARIZED: Final = "summarized for the next turn"
_KEY_SEPARATOR: Final = "\x1f"
"""Stands behind the event's id in its key."""
EXPECTED_REASONS: Final = {"failed": ("interrupted by event ", FAILURE), "dropped": ("queue full",)}


class Row(NamedTuple):
    """A row of the queue."""

    session: str
    number: int
    state: str
    body: str
    reason: str
    turn: int
    changed_ms: int


class Place(NamedTuple):
    """A message on the path of a session, or a mark of the end of a turn."""

    thread: int
    seq: int
    kind: str
    turn: int
    at_ms: int
    role: str = ""
    parts: Sequence[dict[str, Any]] = ()

    @property
    def text(self) -> str:
        """The message's text, without notes."""
        return "".join(part["text"] for part in self.parts if part["type"] == "text")

    @property
    def calls(self) -> dict[str, dict[str, Any]]:
        """The tool calls of the message by id."""
        return {part["id"]: part for part in self.parts if part["type"] == "tool_call"}

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The tool results of the message by the id of their call."""
        return {part["call_id"]: part for part in self.parts if part["type"] == "tool_result"}


class State(NamedTuple):
    """A ledger after a kill: its queue, and the stages at which accepted events were."""

    rows: dict[str, Row]
    stages: set[str]


class _Stored:
    """The tables of a ledger, as one read transaction sees them."""

    def __init__(self, path: Path) -> None:
        db: Any = apsw.Connection(str(path))
        db.set_busy_timeout(10_000)
        db.execute("BEGIN")
        columns = "id, session, number, state, body, reason, turn, changed_ms"
        rows = db.execute(f"SELECT {columns} FROM event ORDER BY number").fetchall()
        self.rows = {event_id(key): Row(*row) for key, *row in rows}
        require(len(self.rows) == len(rows), "an event is in the queue twice")
        self.threads = dict[str, int](db.execute("SELECT label, thread FROM session"))
        moves = db.execute("SELECT label, facts FROM session_move ORDER BY label, number")
        self.metadata: dict[str, dict[str, Any]] = {label: json.loads(metadata) for label, metadata in moves}
        self._parents = {
            id_: (parent, seq) for id_, parent, seq in db.execute("SELECT id, parent, fork_seq FROM thread")
        }
        self.keys = {(thread, key): seq for thread, key, seq in db.execute("SELECT thread, key, seq FROM idempotency")}
        self._places: dict[int, list[Place]] = {}
        sql = (
            "SELECT e.thread, e.seq, e.kind, e.turn, e.at_ms, ifnull(m.role, ''), ifnull(m.content, '[]') FROM entry e"
            " LEFT JOIN message m ON m.thread=e.thread AND m.seq=e.seq ORDER BY e.thread, e.seq, m.ord"
        )
        for *place, content in db.execute(sql):
            self._places.setdefault(place[0], []).append(Place(*place, json.loads(content)))
        db.close()

    @cached_property
    def paths(self) -> dict[str, list[Place]]:
        """What each session has, root first."""
        return {label: self._path(thread) for label, thread in self.threads.items()}

    @cached_property
    def texts(self) -> Counter[str]:
        """How often each user's message is there, in all sessions."""
        return Counter(place.text for path in self.paths.values() for place in path if place.role == "user")

    @cached_property
    def summarized(self) -> Counter[str]:
        """How often each dropped message is in a summary, by what is there of it."""
        summaries = (text for text in self.texts.elements() if "were left out" in text)
        lines = (line for text in summaries for line in text.removesuffix("]").split("\n")[1:])
        return Counter(line.removeprefix("- ") for line in lines)

    def _path(self, thread: int) -> list[Place]:
        own = self._places.get(thread, [])
        parent, fork_seq = self._parents[thread]
        return own if parent is None else [*(place for place in self._path(parent) if place.seq <= fork_seq), *own]

    def place_of(self, id_: str) -> Place | None:
        """Return the entry of an event, found by the event's key, on the path of its session: its first message."""
        path = self.paths.get(self.rows[id_].session, [])
        return next((one for one in path if self.keys.get((one.thread, f"event:{id_}")) == one.seq), None)


def check_kill(path: Path, queue: Queue, told: Sequence[int], before: dict[str, Row]) -> State:
    """Check a ledger after a kill, maybe while another process goes on.

    Args:
        path: The ledger.
        queue: The brokers' settings.
        told: For each event what brokers had returned before the kill (`torture.brokers.serve`).
        before: The rows after the kill before.
    """
    stored = _Stored(path)
    for event, code in zip(queue.events, told, strict=True):
        row = stored.rows.get(event.id)
        require(not code or row is not None, f"event {event.id} was accepted, and is lost")
        if row is not None and code > ACCEPTED:
            require(row.state == TOLD[code], f"event {event.id} was returned as {TOLD[code]}, and is {row.state}")
    for id_, old in before.items():
        row = stored.rows.get(id_)
        require(row is not None, f"event {id_} was there, and is lost")
        assert row is not None
        same = row[:2] + row[3:4] == old[:2] + old[3:4] and (old.state in PENDING or row[2:5] == old[2:5])
        require(same, f"event {id_} was {old}, and is {row}")
    _check_events(stored, queue)
    return State(stored.rows, {_stage(stored, id_) for id_, row in stored.rows.items() if row.state in PENDING})


def check_end(path: Path, queue: Queue) -> tuple[Counter[str], int]:
    """Check a ledger whose events are all settled; return how many have each state, and the number of workers."""
    stored = _Stored(path)
    _check_events(stored, queue)
    missing = [event.id for event in queue.events if event.id not in stored.rows]
    require(not missing, f"events {missing} are lost")
    left = [id_ for id_, row in stored.rows.items() if row.state in PENDING]
    require(not left, f"events {left} are neither answered, failed nor dropped")
    for id_, row in stored.rows.items():
        if row.reason.endswith(SUMMARIZED) and not row.turn:
            # Another process may have begun the turn of the event that it was dropped for, and that may be the last one.
            first = {place.turn: place for place in reversed(stored.paths[row.session])}.values()
            later = [place.turn for place in first if place.at_ms > row.changed_ms]
            require(len(later) < 2, f"event {id_} was dropped, and is in no summary of the turns {later}")
    for label in sorted({row.session for row in stored.rows.values()}):
        _check_order(stored, label)
    unlinked = [label for label, metadata in stored.metadata.items() if label.startswith("worker:") and not metadata]
    require(not unlinked, f"workers {unlinked} have no link")
    states = Counter(stored.rows[event.id].state for event in queue.events)
    return states, sum(bool(metadata) for metadata in stored.metadata.values())


def _check_events(stored: _Stored, queue: Queue) -> None:
    """Check what holds at any time: nothing is doubled or invented, and what is settled is there."""
    texts = {event.id: event.text for event in queue.events}
    tasks = {f"{label}:task" for label in _later_workers(stored)}
    unknown = sorted(stored.rows.keys() - texts.keys() - tasks - {f"{id_}:report" for id_ in tasks})
    require(not unknown, f"events {unknown} were never delivered")
    for id_, row in stored.rows.items():
        if row.state in ("failed", "dropped"):
            is_expected = row.reason.startswith(EXPECTED_REASONS[row.state])
            require(is_expected, f"event {id_} is {row.state} for the reason {row.reason!r}")
        text = texts.get(id_) or json.loads(row.body)["event"]["content"][0]["text"]
        if id_ not in tasks:  # whose texts are the same
            _check_message(stored, id_, row, text)
        if row.state in ("done", "failed"):
            _check_turn(stored, id_, row)
    answered = (id_ for id_ in tasks if stored.rows[id_].state not in PENDING)
    missing = [id_ for id_ in answered if f"{id_}:report" not in stored.rows]
    require(not missing, f"reports of {missing} were not delivered")
    for label, path in stored.paths.items():
        _check_calls(label, path)
    _check_links(stored)


def _check_message(stored: _Stored, id_: str, row: Row, text: str) -> None:
    """Check that the message of an event is there once at most, or once in a summary if the event was dropped for one."""
    times, place = stored.texts[text], stored.place_of(id_)
    summaries = stored.summarized[" ".join(text.split())]
    if row.state == "dropped":
        require(times == 0, f"event {id_} was dropped, and its message is there")
        most = 1 if row.reason.endswith(SUMMARIZED) and place is not None else 0
        require(summaries == most, f"event {id_} was dropped ({row.reason}), and is in {summaries} summaries")
        require(row.turn in (0, place.turn if place else 0), f"event {id_} is not in the summary of turn {row.turn}")
    else:
        require(summaries == 0, f"event {id_} is {row.state}, and in a summary")
        least = row.state in ("done", "failed") or place is not None
        require(least <= times <= 1, f"the message of event {id_}, which is {row.state}, is there {times} times")


def _check_turn(stored: _Stored, id_: str, row: Row) -> None:
    """Check that the turn of a settled event has its message, and a reply behind it or a failure."""
    place = stored.place_of(id_)
    require(place is not None and place.turn == row.turn, f"event {id_} is {row.state}, and is not in turn {row.turn}")
    assert place is not None
    turn = [one for one in stored.paths[row.session] if one.turn == row.turn]
    ends = [one.kind for one in turn if one.kind in ("completed", "failed")]
    wanted = "completed" if row.state == "done" else "failed"
    require(ends[-1:] == [wanted], f"event {id_} is {row.state}, and its turn has {ends}")
    answers = [one.seq for one in turn if one.role == "assistant" and not one.calls]
    is_answered = row.state == "failed" or (len(answers) == 1 and answers[0] > place.seq)
    require(is_answered, f"event {id_} of entry {place.seq} is done, and its turn has the replies {answers}")


def _check_calls(label: str, path: Sequence[Place]) -> None:
    """Check that each call of a completed turn has one result, and no call has two."""
    completed = {place.turn for place in path if place.kind == "completed"}
    calls = [(place.turn, id_) for place in path for id_ in place.calls]
    results = Counter((place.turn, id_) for place in path for id_ in place.results)
    wrong = [call for call in calls if results[call] > 1 or (call[0] in completed and results[call] != 1)]
    require(not wrong, f"calls of {label} without one result: {wrong}")
    doubled = [call for call, times in Counter(calls).items() if times > 1]
    require(not doubled, f"calls of {label} are there twice: {doubled}")


def _check_links(stored: _Stored) -> None:
    """Check that each worker is linked to the call that spawned it, and each such call to one worker."""
    links = {
        label: (metadata.get("parent_session", ""), metadata.get("parent_turn", 0), metadata.get("parent_call_id", ""))
        for label, metadata in stored.metadata.items()
        if metadata or label.startswith("worker:")
    }
    calls = {
        (label, place.turn, id_): json.loads(call["arguments"])["task"]
        for label, path in stored.paths.items()
        for place in path
        for id_, call in place.calls.items()
        if call["name"] == "spawn_worker"
    }
    for label, link in links.items():
        require(link in calls, f"worker {label} is linked to {link}, which is no call")
        task = stored.metadata[label].get("task")
        require(calls[link] == task, f"worker {label} has the task {task!r}, its call {calls[link]!r}")
    doubled = [link for link, times in Counter(links.values()).items() if times > 1]
    require(not doubled, f"calls {doubled} have several workers")
    answered = {
        (label, place.turn, id_)
        for label, path in stored.paths.items()
        for place in path
        for id_, result in place.results.items()
        if result["name"] == "spawn_worker" and not result.get("is_error")
    }
    alone = sorted(answered - set(links.values()))
    require(not alone, f"calls {alone} were answered without a worker")


def _later_workers(stored: _Stored) -> list[str]:
    """Return the labels of the workers that no manager waits for and that were accepted: each reports once."""
    metadata = stored.metadata.items()
    return [label for label, one in metadata if one.get("parent_call_id") == "t" and f"{label}:task" in stored.rows]


def _check_order(stored: _Stored, label: str) -> None:
    """Check that events of the mode `followup` were answered in the order of their acceptance."""
    rows = [row for row in stored.rows.values() if row.session == label and row.state in ("done", "failed")]
    turns = [row.turn for row in rows if json.loads(row.body).get("mode", "followup") == "followup"]
    require(turns == sorted(turns), f"the queue of {label} was answered in the turns {turns}")


def _stage(stored: _Stored, id_: str) -> str:
    """Return how far a pending event was."""
    place = stored.place_of(id_)
    if stored.rows[id_].state == "queued":
        return QUEUED
    if place is None:
        return MARKED
    turn = [one for one in stored.paths[stored.rows[id_].session] if one.turn == place.turn]
    if any(one.kind in ("completed", "failed") for one in turn):
        return SETTLING
    calls = {id_ for one in turn for id_ in one.calls}
    return IN_TOOLS if calls - {id_ for one in turn for id_ in one.results} else CALLING

"""Bringing transcripts into the ledger: each piece once, however often its file is read and however much it has grown.

A transcript is one transaction. A name that another conversation has gets a number. Its forks become sessions `NAME~1`,
`NAME~2`, its side chains `NAME+ID`. When the session went on here meanwhile, what is new in the file becomes a fork
`NAME~continued`, so that neither history is mixed. Several may import the same at once: it is added by one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from nexus.engine import Engine
from nexus.errors import HeadMoved, LedgerBusy
from nexus.interop.entries import import_source, ledger_entries
from nexus.interop.transcript import Fork, Problem, Step, Transcript
from nexus.ledger.sessions import SessionMetadata, SessionStatus
from nexus.types.ledger_entries import Commit

ATTEMPTS = 5
"""How often a path is imported again because somebody else wrote to its session first."""


class ImportReport(Struct, frozen=True):
    """What an import did, or would do in a dry run. `known` counts steps that were there already.

    `status` is that of the session. Nothing is added to one that was deleted: `refused` counts the steps that were not.
    """

    session: str
    format: str
    source: str
    title: str
    added_entries: int
    known_entries: int
    messages: int
    calls: int
    results: int
    compactions: int
    lines: int
    message_lines: int
    counted: dict[str, int]
    omitted: dict[str, int]
    problems: tuple[Problem, ...]
    dry_run: bool
    note: str = ""
    status: SessionStatus = "active"
    rejected: int = 0


def import_transcript(
    nx: Engine, transcript: Transcript, session: str = "", *, dry_run: bool = False
) -> list[ImportReport]:
    """Imports a transcript with its forks and side chains; one result for each session that it touches.

    Each session is one transaction, and each result says what was truly added: others may import the same meanwhile.
    Raises LedgerBusy when others write to a session all the time.
    """
    name = _free_name(nx, transcript.all_keys(), session or transcript.source_id)
    if _status(nx, name) == "deleted":
        return [_kept_out(nx, transcript, name, dry_run=dry_run)]
    source, last = _copied(nx, transcript, name)
    done = [_path(nx, transcript, name, transcript.steps, parent=source, after=last, dry_run=dry_run)]
    homes = [done[0]]
    bare = replace(transcript, counted={}, omitted={}, problems=(), lines=0, message_lines=0)
    for number, fork in enumerate(transcript.forks, 1):
        parent = homes[fork.branch + 1]
        label = _free_name(nx, [key for step in fork.steps for key in step.keys], f"{name}~{number}")
        if parent.rejected and fork.after not in nx.store.known_keys(parent.session):
            one = _told(bare, parent.session, fork.steps, [], dry_run=dry_run, rejected=len(fork.steps))
        else:
            one = _path(nx, bare, label, fork.steps, parent=parent.session, after=fork.after, dry_run=dry_run)
        homes.append(one)
        done.extend([one] if one.added_entries or one.rejected else [])
    for side in transcript.sidechains:
        found = import_transcript(nx, side, f"{name}+{side.source_id}", dry_run=dry_run)
        done.extend(found)
        own, main = found[0].session, done[0].session
        if (
            not dry_run
            and nx.store.resolve(main)
            and nx.store.resolve(own)
            and not nx.ledger.metadata(own).parent_session
        ):
            nx.ledger.update(own, "spawned", parent_session=main)
    return done


def _copied(nx: Engine, transcript: Transcript, name: str) -> tuple[str, str]:
    """The session whose messages a new conversation begins with, and the last key they share; empty if there is none.

    A program that resumes a conversation may copy it into a new file under a new name before it goes on.
    """
    keys = [key for step in transcript.steps for key in step.keys]
    if not transcript.unique_keys or not keys or nx.store.thread_of(name) is not None:
        return "", ""
    threads = {thread for thread, _ in nx.store.holders(keys[0])}
    sources = [one.label for one in nx.store.sessions(every=True) if one.thread in threads]
    shared: dict[str, str] = {}
    for label in sources:
        known = nx.store.known_keys(label)
        for key in keys:
            if key not in known:
                break
            shared[label] = key
    best = max(shared, key=lambda label: keys.index(shared[label]), default="")
    return best, shared.get(best, "")


def _path(
    nx: Engine,
    transcript: Transcript,
    label: str,
    steps: tuple[Step, ...],
    *,
    parent: str = "",
    after: str = "",
    dry_run: bool,
) -> ImportReport:
    """One path of steps into one session; again from the beginning when somebody else wrote to it first."""
    for _ in range(ATTEMPTS):
        with suppress(HeadMoved):
            return _once(nx, transcript, label, steps, parent, after, dry_run=dry_run)
    raise LedgerBusy(
        f"others wrote to session {label!r} {ATTEMPTS} times while its file was imported; nothing was stored the last "
        "time. Import again: what is there already is not added twice"
    )


def _once(
    nx: Engine, transcript: Transcript, label: str, steps: tuple[Step, ...], parent: str, after: str, *, dry_run: bool
) -> ImportReport:
    """What is unknown of a path, at the place where it belongs."""
    base = nx.store.known_keys(parent) if parent else {}
    if parent and after not in base:
        continued = f"{parent}~continued"
        beside = nx.store.known_keys(continued)
        parent, base = (continued, {**base, **beside}) if after in beside else (parent, base)
    known, head = _state(nx, label)
    elsewhere, note = dict(base), ""
    new = _unknown(steps, {**elsewhere, **known})
    if new and _status(nx, label) == "deleted":
        return _told(transcript, label, steps, [], status="deleted", dry_run=dry_run, rejected=len(new))
    if not new and parent and nx.store.thread_of(label) is None:
        note = f"session {parent!r} has all of this already, so no session {label!r} was made"
        return _told(transcript, parent, steps, [], status=_status(nx, parent), note=note, dry_run=dry_run)
    if new and parent and not known and not dry_run:
        at = base.get(after, 0)
        at += base.get(f"{after}:end") == at + 1  # with the end of the turn, if that is what ended it
        head = _fork(nx, label, parent, at, _facts(transcript))
    while new and (last := _last(steps, known, head)) < head:
        continued = f"{label}~continued"
        elsewhere |= known
        known, head = _state(nx, continued)
        new = _unknown(steps, {**elsewhere, **known})
        if new:
            note = f"the session went on otherwise since the last import: what is new became {continued!r}"
            if not dry_run and nx.store.thread_of(continued) is None:
                head = _fork(nx, continued, label, last, None)
        label, head = continued, head or last
    if new and _status(nx, label) == "deleted":
        return _told(transcript, label, steps, [], status="deleted", dry_run=dry_run, rejected=len(new))
    made = list(ledger_entries(nx, steps, {**elsewhere, **known}, head))
    if made and not known and not parent:
        made[0] = replace(made[0], body={**made[0].body, "imported": import_source(transcript)})
    if made and not dry_run:
        done = nx.store.commit(label, Commit(tuple(made), expected_head=head), _facts(transcript))
        new = new if done.added else []  # nothing, where somebody else imported the same meanwhile
    return _told(transcript, label, steps, new, status=_status(nx, label), note=note, dry_run=dry_run)


def _kept_out(nx: Engine, transcript: Transcript, label: str, *, dry_run: bool) -> ImportReport:
    """What an import of a conversation says whose session was deleted: nothing is added, to it or beside it."""
    new = _unknown(transcript.steps, nx.store.known_keys(label))
    beside = [step for part in (*transcript.forks, *transcript.sidechains) for step in _all_steps(part)]
    refused = len(new) + sum(any(not nx.store.holders(key) for key in step.keys) for step in beside)
    told = _told(transcript, label, transcript.steps, [], status="deleted", dry_run=dry_run, rejected=len(new))
    return replace(told, rejected=refused)


def _all_steps(part: Fork | Transcript) -> Iterable[Step]:
    return part.steps if isinstance(part, Fork) else part.all_steps()


def _told(
    transcript: Transcript,
    label: str,
    steps: tuple[Step, ...],
    new: list[Step],
    *,
    status: SessionStatus = "active",
    note: str = "",
    dry_run: bool,
    rejected: int = 0,
) -> ImportReport:
    """The result for a path of `steps`, of which `new` were added to the session."""
    messages = [message for step in new for message in step.messages]
    return ImportReport(
        session=label,
        format=transcript.format,
        source=transcript.source_id,
        title=transcript.title,
        added_entries=len(new),
        known_entries=len(steps) - len(new) - rejected,
        messages=len(messages),
        calls=sum(1 for m in messages for _ in m.calls()),
        results=sum(1 for m in messages for _ in m.results()),
        compactions=sum(step.kind == "compaction" for step in new),
        lines=transcript.lines,
        message_lines=transcript.message_lines,
        counted=transcript.counted,
        omitted=transcript.omitted,
        problems=transcript.problems,
        dry_run=dry_run,
        note=note,
        status=status,
        rejected=rejected,
    )


def _facts(transcript: Transcript) -> SessionMetadata:
    return SessionMetadata(title=transcript.title, origin=transcript.format, origin_id=transcript.source_id)


def _status(nx: Engine, label: str) -> SessionStatus:
    return nx.ledger.metadata(label).status if nx.store.thread_of(label) is not None else "active"


def _free_name(nx: Engine, keys: Iterable[str], wanted: str) -> str:
    """The first of NAME, NAME-2, … that is new or has something of this very conversation: two are never mixed."""
    own = set(keys)
    name, number = wanted, 1
    while nx.store.thread_of(name) is not None and own.isdisjoint(nx.store.known_keys(name)):
        number += 1
        name = f"{wanted}-{number}"
    return name


def _unknown(steps: tuple[Step, ...], known: Mapping[str, int]) -> list[Step]:
    return [step for step in (step.without(known) for step in steps) if step is not None]


def _last(steps: tuple[Step, ...], known: Mapping[str, int], head: int) -> int:
    """Where the newest known step of the path stands; at the head if none is known."""
    return max((known[key] for step in steps for key in _keys(step) if key in known), default=head)


def _state(nx: Engine, label: str) -> tuple[dict[str, int], int]:
    """The keys that a session knows and its head, at one moment: what is appended at that head is new."""
    with nx.store.snapshot():
        thread = nx.store.thread_of(label)
        return nx.store.known_keys(label), nx.store.head(thread)[0] if thread is not None else 0


def _fork(nx: Engine, label: str, source: str, at: int, facts: SessionMetadata | None) -> int:
    """Makes a session that continues another one; its head. Raises SessionMoved if somebody else makes it meanwhile."""
    last = nx.store.session(label)
    number = last.number if last is not None else 0
    return nx.store.thread(nx.store.fork(label, source, at, facts=facts, expected_number=number)).head_seq


def _keys(step: Step) -> tuple[str, ...]:
    return (*step.keys, *(f"{key}:end" for key in step.keys[-1:]))

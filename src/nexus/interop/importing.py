"""Import of transcripts into the ledger: each piece once, however often its file is read and however much it grew.

A path of a transcript is one transaction. A name that another conversation has gets a number. Forks become the sessions
`NAME~1`, `NAME~2`, side chains `NAME+ID`. The name follows the file's newest path: if the user went back, or if messages
changed or were added between others, it moves to a new thread, and its former messages become `NAME~N`. If the session
continued in the ledger, new steps of the file become a fork `NAME~continued`, so that histories are not mixed. Of
concurrent imports of the same file one adds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import count
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.assembly.record import with_sizes
from nexus.engine import Engine
from nexus.errors import BadReference, HeadMoved, LedgerBusy
from nexus.interop.differences import changed_keys, first_difference, is_beginning
from nexus.interop.transcript import FileReport, Problem, Step, Transcript, with_known_times
from nexus.ledger.sessions import NewRefUpdate, SessionMetadata, SessionStatus
from nexus.providers.received import mapping
from nexus.tokens.image_limits import ImageLimits
from nexus.tokens.image_price import sent_images
from nexus.types.counts import count_noun
from nexus.types.ledger_entries import Commit, Compaction, NewEntry
from nexus.workspace.attachments import with_image_sizes
from nexus.workspace.sendable_images import sendable_image

ATTEMPTS = 5
"""Attempts to import a path when other writers change its session first."""


class ImportReport(Struct, frozen=True):
    """Result of an import, or of a dry run. The JSON keys `added`, `known`, `left_out` and `refused` stay as they are."""

    session: str
    format: str
    source: str
    title: str
    added_entries: int
    known_entries: int
    """Steps that were in the ledger already."""
    messages: int
    calls: int
    results: int
    compactions: int
    lines: int
    message_lines: int
    counted: dict[str, int]
    omitted: dict[str, int]
    """Fields of message lines that are not imported, with counts."""
    problems: tuple[Problem, ...]
    dry_run: bool
    note: str = ""
    status: SessionStatus = "active"
    rejected: int = 0
    """Steps that were not added because the session is deleted."""
    cost_usd: float = 0.0
    """Cost of the calls in dollars, as the file reports it; 0 if it does not."""


def import_transcript(
    nx: Engine, transcript: Transcript, session: str = "", *, dry_run: bool = False
) -> list[ImportReport]:
    """Import a transcript with its forks and side chains; return one report for each session.

    Each session is one transaction. A report counts what this import added, not what a concurrent one did.
    Raises LedgerBusy if other writers keep changing a session.
    """
    transcript = with_known_times(transcript)
    name = _name(nx, transcript, session)
    transcript = _with_image_problems(nx, transcript)
    if nx.ledger.store.thread_of(name) is not None and transcript.after in nx.ledger.store.known_keys(name):
        transcript = _without_link_problem(transcript)
    if _status(nx, name) == "deleted":
        return [_report_of_deleted(nx, transcript, name, dry_run=dry_run)]
    source, last = _copied_from(nx, transcript, name)
    reports = [_path(nx, transcript, name, transcript.steps, parent=source, after=last, dry_run=dry_run)]
    _retitle(nx, transcript, reports[0].session, dry_run=dry_run)
    homes = [reports[0]]
    # Lines and problems are counted once, in the report of the main path.
    bare = replace(transcript, report=FileReport())
    for number, fork in enumerate(transcript.forks, 1):
        parent = homes[fork.branch + 1]
        label = _fork_name(nx, [key for step in fork.steps for key in step.keys], name, number)
        if parent.rejected and fork.after not in nx.ledger.store.known_keys(parent.session):
            report = _report(bare, parent.session, fork.steps, [], dry_run=dry_run, rejected=len(fork.steps))
        else:
            report = _path(nx, bare, label, fork.steps, parent=parent.session, after=fork.after, dry_run=dry_run)
        homes.append(report)
        if report.added_entries or report.rejected:
            reports.append(report)
    for side in transcript.sidechains:
        side_reports = import_transcript(nx, side, f"{name}+{side.source_id}", dry_run=dry_run)
        reports.extend(side_reports)
        _link(nx, side_reports[0].session, reports[0].session, side.call_id, dry_run=dry_run)
    if transcript.parent:
        _link(nx, reports[0].session, transcript.parent, dry_run=dry_run)
    for label in _agents_of(nx, transcript):
        _link(nx, label, reports[0].session, dry_run=dry_run)
    return reports


def _without_link_problem(transcript: Transcript) -> Transcript:
    """Return the transcript without the problem that the message which it continues is not in its file."""
    after = transcript.after
    problems = (other for other in transcript.report.problems if other.kind != "broken link" or after not in other.text)
    return _with_problems(transcript, problems)


def _report_of_deleted(nx: Engine, transcript: Transcript, name: str, *, dry_run: bool) -> ImportReport:
    """Return the report for a deleted session: nothing is added to it, nor to its forks and side chains."""
    new = _new_steps(transcript.steps, nx.ledger.store.known_keys(name))
    others = [step for fork in transcript.forks for step in fork.steps]
    others += (step for side in transcript.sidechains for step in side.all_steps())
    rejected = len(new) + sum(any(not nx.ledger.store.holders(key) for key in step.keys) for step in others)
    report = _report(transcript, name, transcript.steps, [], status="deleted", dry_run=dry_run, rejected=len(new))
    return replace(report, rejected=rejected)


def _with_image_problems(nx: Engine, transcript: Transcript) -> Transcript:
    """Return the transcript with a problem for each image that no model can be shown. It is stored as it is in the file."""
    limits = ImageLimits(decoded_px=nx.workspace_context.config.images.max_pixels, has_heic=True)
    images = (image for step in transcript.steps for message in step.messages for image in sent_images(message))
    reasons = (sendable_image(image, limits) for image in images)
    problems = [Problem(0, "image not shown", reason) for reason in reasons if isinstance(reason, str)]
    if not problems:
        return transcript
    return _with_problems(transcript, (*transcript.report.problems, *problems))


def _with_problems(transcript: Transcript, problems: Iterable[Problem]) -> Transcript:
    return replace(transcript, report=replace(transcript.report, problems=tuple(problems)))


def _retitle(nx: Engine, transcript: Transcript, label: str, *, dry_run: bool) -> None:
    """Set a title that the file got since the last import, unless the session was named otherwise here."""
    if transcript.title and not dry_run and nx.ledger.store.thread_of(label) is not None:
        title = nx.ledger.sessions.metadata(label).title
        if title != transcript.title and title in ("", replace(transcript, title="").shown_title):
            nx.ledger.sessions.update(label, "titled", title=transcript.title)


def _agents_of(nx: Engine, transcript: Transcript) -> list[str]:
    """Return the sessions of sub-agents that were imported from files of their own before this transcript."""
    prefix = f"{transcript.source_id}+"
    return [other.label for other in nx.ledger.store.sessions(every=True, prefix=prefix) if not other.parent_session]


def _link(nx: Engine, child: str, parent: str, call_id: str = "", *, dry_run: bool) -> None:
    """Store which session and tool call started a sub-agent's session, unless it has a parent."""
    if dry_run or not nx.ledger.store.resolve(parent) or not nx.ledger.store.resolve(child):
        return
    if not nx.ledger.sessions.metadata(child).parent_session:
        call_id = call_id or _call_with_prompt(nx, parent, child)
        for call in dict.fromkeys((call_id, "")):  # the call may be on an abandoned branch
            with suppress(BadReference):
                nx.ledger.sessions.update(child, "spawned", parent_session=parent, parent_call_id=call)
                return


def _call_with_prompt(nx: Engine, parent: str, child: str) -> str:
    """Return the call in the parent that contains the first message of a sub-agent; empty for none."""
    rows = (row for entry in nx.ledger.iter_entries(child) for row in entry.rows)
    prompt = next((row.message.text() for row in rows), "")
    if not prompt:
        return ""
    for entry in nx.ledger.iter_entries(parent):
        for call in (call for row in entry.rows for call in row.message.calls()):
            with suppress(ValueError, RecursionError):
                if mapping(json.loads(call.arguments)).get("prompt") == prompt:
                    return call.id
    return ""


def _copied_from(nx: Engine, transcript: Transcript, name: str) -> tuple[str, str]:
    """Return the session whose messages a new conversation begins with, and their last common key; empty without one."""
    # A program that resumes a conversation may copy it into a new file with a new name first.
    path_keys = (key for step in transcript.steps for key in step.keys)
    keys = [*filter(None, (transcript.after, *path_keys))]
    if not transcript.unique_keys or not keys or nx.ledger.store.thread_of(name) is not None:
        return "", ""
    shared: dict[str, str] = {}
    for label in _sessions_with(nx, keys[0]):
        stored = nx.ledger.store.known_keys(label)
        for key in keys:
            if key not in stored:
                break
            shared[label] = key
    best = max(shared, key=lambda label: keys.index(shared[label]), default="")
    return best, shared.get(best, "")


def _sessions_with(nx: Engine, key: str) -> list[str]:
    """Return the sessions whose newest thread has the entry with this key."""
    threads = {thread for thread, _ in nx.ledger.store.holders(key)}
    if not threads:
        return []
    store = nx.ledger.store
    labels = {label for thread in threads for label in store.labels_of(thread, every=True)}
    infos = [info for label in labels if (info := store.session_info(label)) is not None]
    return [info.label for info in sorted(infos, key=lambda info: (-info.last_ms, info.label))]


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
    """Import one path of steps into one session; try again if another writer was faster."""
    for _ in range(ATTEMPTS):
        with suppress(HeadMoved):
            note = ""
            if not parent:
                moved, note = _follow(nx, transcript, label, steps, dry_run=dry_run)
                if moved is not None:
                    return moved
            return _import_path(nx, transcript, label, steps, parent, after, note, dry_run=dry_run)
    raise LedgerBusy(
        f"session {label!r} changed {ATTEMPTS} times during the import; the rest was not stored "
        "(import again: stored steps are not added twice)"
    )


def _follow(
    nx: Engine, transcript: Transcript, label: str, steps: tuple[Step, ...], *, dry_run: bool
) -> tuple[ImportReport | None, str]:
    """Move a session to the file's path if that left the session's, or return a note if the session must stay."""
    stored, head = _state(nx, label)
    changed = changed_keys(nx.ledger.store, label, steps, stored)
    first = first_difference(steps, stored, head, changed)
    if first and _is_of_file(transcript, stored, first, head) and _status(nx, label) != "deleted":
        return _move(nx, transcript, label, steps, first - 1, len(changed), dry_run=dry_run), ""
    if not changed:
        return None, ""
    messages = count_noun(len(changed), "message")
    return None, f"{messages} changed in the file: the session was continued here and keeps the old ones"


def _import_path(
    nx: Engine,
    transcript: Transcript,
    label: str,
    steps: tuple[Step, ...],
    parent: str,
    after: str,
    note: str,
    *,
    dry_run: bool,
) -> ImportReport:
    """Append the new steps of a path where they belong."""
    parent, base = _fork_parent(nx, parent, after)
    stored, head = _state(nx, label)
    elsewhere = dict(base)
    new = _new_steps(steps, {**elsewhere, **stored})
    # Checked before anything is written: a deleted session stays as it is, without an empty fork next to it.
    if new and _status(nx, label) == "deleted":
        return _report(transcript, label, steps, [], status="deleted", dry_run=dry_run, rejected=len(new))
    if not new and parent and nx.ledger.store.thread_of(label) is None:
        note = f"session {parent!r} contains all steps; session {label!r} not created"
        return _report(transcript, parent, steps, [], status=_status(nx, parent), note=note, dry_run=dry_run)
    if new and parent and not stored and not dry_run:
        at = base.get(after, 0)
        at += base.get(f"{after}:end") == at + 1  # include the end of the turn
        head = _fork(nx, label, parent, at, _metadata(transcript))

    # The newest stored step of the path is not the head: the session was continued here, so the rest becomes a fork.
    while new and (last := _newest_of_path(stored, steps, transcript.after, head)) < head:
        continued = f"{label}~continued"
        elsewhere |= stored
        stored, head = _state(nx, continued)
        new = _new_steps(steps, {**elsewhere, **stored})
        if new:
            note = f"session changed since the last import: new steps added to {continued!r}"
            if not dry_run and nx.ledger.store.thread_of(continued) is None:
                head = _fork(nx, continued, label, last, None)
        label = continued
        head = head or last
    if new and _status(nx, label) == "deleted":
        return _report(transcript, label, steps, [], status="deleted", dry_run=dry_run, rejected=len(new))

    entries = list(ledger_entries(nx, steps, {**elsewhere, **stored}, head))
    is_first = not stored and not parent
    if not _append(nx, transcript, label, entries, head, is_first=is_first, dry_run=dry_run):
        new = []
    return _report(transcript, label, steps, new, status=_status(nx, label), note=note, dry_run=dry_run)


def _append(
    nx: Engine, transcript: Transcript, label: str, entries: list[NewEntry], head: int, *, is_first: bool, dry_run: bool
) -> bool:
    """Append entries to a session; return False if a concurrent import of the same file was faster."""
    if dry_run or not entries:
        return True
    if is_first:
        entries[0] = _with_source(entries[0], transcript)
    result = nx.ledger.store.commit(label, Commit(tuple(entries), expected_head=head), _metadata(transcript))
    return result.added > 0


def _fork_parent(nx: Engine, parent: str, after: str) -> tuple[str, dict[str, int]]:
    """Return the session that a path forks from, which may be the parent's continuation, and the keys in it."""
    if not parent:
        return "", {}
    keys = nx.ledger.store.known_keys(parent)
    if after in keys:
        return parent, keys
    continued = f"{parent}~continued"
    more = nx.ledger.store.known_keys(continued)
    if after not in more:
        return parent, keys
    return continued, {**keys, **more}


def _newest_of_path(stored: Mapping[str, int], steps: tuple[Step, ...], after: str, default: int) -> int:
    """Return the newest stored entry of a path that continues the message `after`, ends of turns included."""
    keys = [after, f"{after}:end"]
    for step in steps:
        keys += step.keys
        keys += (f"{last}:end" for last in step.keys[-1:])
    return max((stored[key] for key in keys if key in stored), default=default)


def _with_source(entry: NewEntry, transcript: Transcript) -> NewEntry:
    """Return the first entry of a session with the metadata of the file."""
    source = {"format": transcript.format, "source": transcript.source_id}
    source |= {"cwd": transcript.cwd, "model": transcript.model}
    imported: dict[str, Any] = {name: value for name, value in source.items() if value}
    if transcript.meta:
        imported["meta"] = json.loads(transcript.meta)
    return replace(entry, body={**entry.body, "imported": imported})


def _is_of_file(transcript: Transcript, stored: Mapping[str, int], first: int, head: int) -> bool:
    """Return true if all entries from `first` on come from the transcript, or from an earlier state of its file."""
    keys = {*transcript.all_keys()}
    prefix = f"{transcript.source_id}/"
    seqs: set[int] = set()
    for key, seq in stored.items():
        is_earlier_state = not transcript.unique_keys and key.startswith(prefix)
        if is_earlier_state or key.removesuffix(":end") in keys:
            seqs.add(seq)
    return seqs.issuperset(range(first, head + 1))


def _move(
    nx: Engine,
    transcript: Transcript,
    label: str,
    steps: tuple[Step, ...],
    at: int,
    changed: int,
    *,
    dry_run: bool,
) -> ImportReport:
    """Move a session to a new thread that continues its entry `at` with the path of `steps`.

    The former messages get a name of their own; they are archived unless they are a branch of the file.
    """
    pointer = nx.ledger.store.session(label)
    stored, head = _state(nx, label)
    first_keys = {key: seq for key, seq in stored.items() if seq <= at}
    path_keys = {key for step in steps for key in step.keys}
    abandoned_keys = {key.removesuffix(":end") for key, seq in stored.items() if seq > at} - path_keys
    number = next(number for number in count(1) if nx.ledger.store.session(f"{label}~{number}") is None)
    old = f"{label}~{number}"
    if changed:
        messages = count_noun(changed, "message")
        note = f"{messages} changed in the file: the session has the new ones, {old!r} (archived) the old ones"
    elif abandoned_keys:
        note = f"the file continues from an earlier message, and so does the session; the abandoned ones are in {old!r}"
    else:
        note = (
            f"messages were missing between others and have been added; the session without them is {old!r} (archived)"
        )
    added = _new_steps(steps, stored)
    was_incomplete = pointer is not None and _was_incomplete(nx, pointer.thread or 0, at, _new_steps(steps, first_keys))
    if was_incomplete:
        note = f"a message was incomplete at the last import and has been completed; {old!r} (deleted) has the session before"
    if not dry_run and pointer is not None:
        nx.ledger.store.fork(old, label, at, metadata=_metadata(transcript), expected_number=0)
        entries = tuple(ledger_entries(nx, steps, first_keys, at))
        nx.ledger.store.commit(old, Commit(entries, expected_head=at), _metadata(transcript))
        status: SessionStatus = "active" if abandoned_keys else "archived"
        if was_incomplete:
            status = "deleted"
        former = replace(_metadata(transcript), status=status)
        thread = nx.ledger.store.thread_of(old)
        reason = f"import: {note}"
        updates = [
            NewRefUpdate(label, thread, reason, None, pointer.number),
            NewRefUpdate(old, pointer.thread, reason, former, 1),
        ]
        with ExitStack() as undo:  # the next attempt makes another thread
            undo.callback(nx.ledger.sessions.delete, old)
            head_now, _ = nx.ledger.store.head(pointer.thread or 0)
            if head_now != head:
                raise HeadMoved(label, head, head_now)
            nx.ledger.store.update_refs(updates)
            undo.pop_all()
    return _report(transcript, label, steps, added, status=_status(nx, label), note=note, dry_run=dry_run)


def _was_incomplete(nx: Engine, thread: int, at: int, steps: list[Step]) -> bool:
    """Return True if a thread's messages after the entry `at` are beginnings of those that replace them."""
    abandoned = [row.message for entry in nx.ledger.store.entries(thread, at) for row in entry.rows]
    return is_beginning(abandoned, (message for step in steps for message in step.messages))


def _report(
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
    """Return the report for a path of `steps`, of which `new` were added to the session."""
    file = transcript.report
    messages = [message for step in new for message in step.messages]
    return ImportReport(
        session=label,
        format=transcript.format,
        source=transcript.source_id,
        title=transcript.shown_title,
        added_entries=len(new),
        known_entries=len(steps) - len(new) - rejected,
        messages=len(messages),
        calls=sum(1 for m in messages for _ in m.calls()),
        results=sum(1 for m in messages for _ in m.results()),
        compactions=sum(step.kind == "compaction" for step in new),
        lines=file.lines,
        message_lines=file.message_lines,
        counted=file.counted,
        omitted=file.omitted,
        problems=file.problems,
        dry_run=dry_run,
        note=note,
        status=status,
        rejected=rejected,
        cost_usd=file.cost_usd,
    )


def _metadata(transcript: Transcript) -> SessionMetadata:
    return SessionMetadata(
        routing_key=transcript.source_id if transcript.format == "nanobot" else "",  # `channel:chat_id`
        title=transcript.shown_title,
        origin=transcript.format,
        origin_id=transcript.source_id,
    )


def _status(nx: Engine, label: str) -> SessionStatus:
    if nx.ledger.store.thread_of(label) is not None:
        return nx.ledger.sessions.metadata(label).status
    return "active"


def _name(nx: Engine, transcript: Transcript, session: str) -> str:
    """Return the name of the transcript's session: of one that it continues, or a free one."""
    wanted = session or transcript.source_id
    candidates = [wanted]
    if transcript.after and not session:
        candidates += _sessions_with(nx, transcript.after)
    for label in candidates:
        if transcript.unique_keys and transcript.steps and _is_continued(nx, transcript, label):
            return label
    return _free_name(nx, transcript.all_keys(), wanted)


def _is_continued(nx: Engine, transcript: Transcript, label: str) -> bool:
    """Return True if a session is of the transcript's conversation, and ends before or in its steps."""
    if nx.ledger.store.thread_of(label) is None:
        return False
    metadata = nx.ledger.sessions.metadata(label)
    if (metadata.origin, metadata.origin_id) != (transcript.format, transcript.source_id):
        return False
    if transcript.after in nx.ledger.store.known_keys(label):
        return True
    info = nx.ledger.store.session_info(label)
    return info is not None and transcript.steps[0].at_ms > info.last_ms > 0


def _fork_name(nx: Engine, keys: list[str], name: str, number: int) -> str:
    """Return the name of the fork that has these keys, or a free one."""
    for label in _sessions_with(nx, keys[-1]) if keys else ():
        if label == name or label.startswith(f"{name}~"):
            return label
    return _free_name(nx, keys, f"{name}~{number}")


def _free_name(nx: Engine, keys: Iterable[str], wanted: str) -> str:
    """Return the first of NAME, NAME-2, … that is new or contains steps of this conversation."""
    key_set = set(keys)
    name = wanted
    number = 1
    while nx.ledger.store.thread_of(name) is not None and key_set.isdisjoint(nx.ledger.store.known_keys(name)):
        number += 1
        name = f"{wanted}-{number}"
    return name


def _new_steps(steps: tuple[Step, ...], stored: Mapping[str, int]) -> list[Step]:
    new = (step.without(stored) for step in steps)
    return [step for step in new if step is not None]


def _state(nx: Engine, label: str) -> tuple[dict[str, int], int]:
    """Return the keys in a session and its head, from one snapshot."""
    with nx.ledger.store.snapshot():
        thread = nx.ledger.store.thread_of(label)
        return nx.ledger.store.known_keys(label), nx.ledger.store.head(thread)[0] if thread is not None else 0


def _fork(nx: Engine, label: str, source: str, at: int, metadata: SessionMetadata | None) -> int:
    """Create a session that continues another one and return its head. Raises HeadMoved if it was just created."""
    last = nx.ledger.store.session(label)
    number = last.number if last is not None else 0
    return nx.ledger.store.thread(
        nx.ledger.store.fork(label, source, at, metadata=metadata, expected_number=number)
    ).head_seq


def ledger_entries(nx: Engine, steps: tuple[Step, ...], stored: Mapping[str, int], head: int) -> Iterator[NewEntry]:
    """Yield the entries to append. Positions count from `head`, which the commit checks."""
    seqs = dict(stored)
    covers_from = 1
    next_seq = head + 1
    for step in steps:
        new = step.without(stored)
        seq = seqs.get(step.keys[0], 0) if step.keys else 0
        if new is not None:
            seq = next_seq
        if step.kind == "clear":
            covers_from = seq + 1
        first_kept = seqs.get(step.kept_from, seq + 1)
        if new is not None:
            body: dict[str, Any] = {**step.facts}
            if step.kind == "compaction":
                compaction = Compaction(
                    covers_from=covers_from,
                    covers_to=min(seq, first_kept) - 1,
                    first_kept=first_kept,
                    summary=step.summary,
                    type="imported",
                    trigger=step.trigger or "manual",
                    tokens_before=step.tokens_before,
                )
                body |= msgspec.to_builtins(compaction)
            else:
                if step.usage is not None:
                    body["usage"] = step.usage.stored()
                if step.stop_reason:
                    body["stop_reason"] = step.stop_reason
            messages = with_sizes(map(with_image_sizes, new.messages), nx.counter)
            yield NewEntry(step.kind, messages, body, new.at_ms, new.starts_turn, new.keys)
            seqs.update(dict.fromkeys(new.keys, seq))
            next_seq += 1
        if step.kind == "compaction":
            covers_from = seqs.get(step.kept_from, seq + 1)
        end = f"{step.keys[-1]}:end" if step.keys else ""
        if step.closes_turn and step.kind != "failed" and end and end not in stored:
            yield NewEntry("completed", at_ms=step.at_ms, keys=(end,))
            next_seq += 1

"""Judges long conversations by what arrived upstream, what the clients got, and what the ledger has."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import nexus
from clients.long_talk import Talk
from clients.tap import TappedRequest
from nexus.engine.analysis.replay import explain_call, replay_call
from nexus.ledger.maintenance.verification import verify
from nexus.proxy.reports import CallReport, stored_report
from nexus.testing.model_server import ModelRequest
from support.client_requests import ClientRequest, Outcome
from support.mirrored_body import LIST_KEYS, event_of, format_of, python_form, results_of
from support.validity import CHECKS, Json, Recounter

MARK = re.compile(r"characters left out here|left out")
_BEGIN = re.compile(r"begin note-[\w.-]+ Q\w+")
_SURELY_FITS = 1.6
"""No model's tokens are more than this many times those of the count here."""


@dataclass
class Verdict:
    """What was found of one conversation."""

    talk: Talk
    requests: int = 0
    cuts: int = 0
    sessions: int = 0
    replayed: int = 0
    last_recorded: Json = field(default_factory=dict)
    """The last request of the conversation that is recorded, as the client sent it."""
    open_calls: Counter[str] = field(default_factory=Counter)
    """Calls that are not recorded, by cause."""
    mixed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    """Requests that were changed without need."""
    refused: list[str] = field(default_factory=list)
    """Requests that the proxy did not send."""
    unrecorded: list[str] = field(default_factory=list)
    """Calls that should be recorded, explained and replayed, and are not."""

    @property
    def faults(self) -> list[str]:
        """Everything that must not be, in sentences."""
        kinds = ("mixed", "lost", "invalid", "over", "changed", "refused", "unrecorded")
        found = [f"{self.talk.name}: {kind}: {text}" for kind in kinds for text in getattr(self, kind)]
        return [*found, *(f"{self.talk.name}: {text}" for text in self.talk.failures)]


class Judge:
    """Judges the conversations of one proxy.

    Args:
        talks: All of them.
        ledger: Its ledger, which nobody has open any more.
        budget: Tokens of its budget; None without one.
        log: Its log.
    """

    def __init__(self, talks: Sequence[Talk], ledger: Path, budget: int | None, log: Path) -> None:
        self._talks = talks
        self._ledger = ledger
        self._budget = budget
        self._log = log
        self._recount = Recounter().count

    def verdicts(self) -> tuple[list[Verdict], list[str]]:
        """Return what was found of each conversation, and of the ledger and the log."""
        verdicts: list[Verdict] = []
        with nexus.open(ledger=self._ledger) as nx:
            for talk in self._talks:
                verdict = Verdict(talk)
                verdicts.append(verdict)
                for asked in talk.tap.requests:
                    self._judge_request(verdict, asked)
                self._judge_records(verdict, nx)
            faults = self._shared_sessions(nx, verdicts)
        faults += [f"ledger damaged: {damage}" for damage in verify(self._ledger)]
        text = self._log.read_text()
        faults += [f"the log has a text of {talk.name}" for talk in self._talks if talk.canary in text]
        faults += [f"log: {line[:300]}" for line in text.splitlines() if "Traceback" in line]
        return verdicts, faults

    def _others(self, talk: Talk) -> list[str]:
        return [other.canary for other in self._talks if other is not talk]

    # requests ----------------------------------------------------------------------------------------------------

    def _judge_request(self, verdict: Verdict, asked: TappedRequest) -> None:
        talk = verdict.talk
        format_ = format_of(asked.path.partition("?")[0])
        if format_ is None:
            return
        verdict.requests += 1
        where = f"request {asked.number}"
        for canary in self._others(talk):
            if canary.encode() in asked.answer:
                verdict.mixed.append(f"the answer of {where} has another conversation's text")
        arrived = [request for request in talk.resent if request.headers["x-tap"].endswith(f"/{asked.number}")]
        if asked.number in talk.upstream:
            arrived.append(talk.upstream[asked.number])
            if self._budget is not None and (asked.status in (400, 413) or _is_failed(asked)):
                verdict.refused.append(f"{where}: the client saw a refusal that a smaller request would have answered")
        elif asked.status and not asked.is_refused:
            verdict.refused.append(f"{where}: {asked.status}: {asked.answer[-400:].decode('utf-8', 'replace')}")
        for request in arrived:
            self._judge_sent(verdict, where, asked, request)

    def _judge_sent(self, verdict: Verdict, where: str, asked: TappedRequest, request: ModelRequest) -> None:
        format_ = request.format
        original = asked.body
        text = request.data.decode()
        if any(canary in text for canary in self._others(verdict.talk)):
            verdict.mixed.append(f"{where} has another conversation's text")
        verdict.lost += [f"{where} lost {part}" for part in lost_results(format_, original, request.body)]
        outcome = Outcome(ClientRequest(format_, request.model, original), request.body)
        verdict.invalid += [f"{where}: {fault}" for fault in outcome.new_faults]
        verdict.lost += [f"{where} lost {part}" for part in outcome.lost_parts]
        tokens = self._recount(request.body)
        if self._budget is not None and tokens > self._budget:
            verdict.over.append(f"{where} has {tokens:,} tokens")
        is_small = self._budget is None or _SURELY_FITS * self._recount(original) <= self._budget
        is_changed = request.data != asked.data
        if self._budget is not None:  # cache breakpoints are no change
            is_changed = _unmarked(original) != _unmarked(request.body)
        if is_small and is_changed and not _faults(format_, original):
            verdict.changed.append(where)

    # records -----------------------------------------------------------------------------------------------------

    def _judge_records(self, verdict: Verdict, nx: nexus.Engine) -> None:
        talk = verdict.talk
        sessions = set[str]()
        omitted = 0
        for asked in talk.tap.requests:
            if format_of(asked.path.partition("?")[0]) is None:
                continue
            report = stored_report(nx.ledger.store, asked.call_id) if asked.call_id else None
            cause = self._cause(talk, asked, report)
            if cause:
                verdict.open_calls[cause] += 1
                continue
            if report is None or not report.session:
                reasons = "no report" if report is None else f"{report.reasons} {report.error}"
                verdict.unrecorded.append(f"request {asked.number}, call {asked.call_id}: {reasons}")
                continue
            if not talk.is_side(report.model):
                sessions.add(report.session)
                verdict.last_recorded = asked.body
                verdict.cuts += report.omitted > omitted
                omitted = report.omitted
            self._replay(verdict, nx, asked, report)
        verdict.sessions = len(sessions)

    def _cause(self, talk: Talk, asked: TappedRequest, report: CallReport | None) -> str:
        """Return why a call need not be recorded; empty if it must be."""
        if asked.is_refused:
            return "proxy down"
        if asked.call_id in talk.unsaved and (report is None or not report.session):
            return "nothing could be written"
        if asked.status == 200 and asked.is_answered and not _is_failed(asked):
            return ""
        if report is not None and report.session:
            return ""
        if asked.status >= 400:
            return f"status {asked.status}"
        if asked.status == 200 and asked.is_answered:
            return "refused in its stream"
        if report is not None:
            return report.error or "open"
        return "no answer" if not asked.status else "answer cut off"

    def _replay(self, verdict: Verdict, nx: nexus.Engine, asked: TappedRequest, report: CallReport) -> None:
        where = f"request {asked.number}, call {report.id}"
        try:
            call = nx.calls.find_on(report.thread, report.session, report.turn, report.number or None)
            replayed = replay_call(nx.calls.dependencies, call)
            explanation = explain_call(nx.calls.dependencies, replayed)
        except nexus.NexusError as error:
            verdict.unrecorded.append(f"{where}: {type(error).__name__}: {error}")
            return
        verdict.replayed += 1
        unexplained = [line for line in explanation.lines if line.state in ("omitted", "truncated") and not line.reason]
        if unexplained:
            verdict.unrecorded.append(f"{where}: {len(unexplained)} omissions without a reason")
        request = verdict.talk.upstream.get(asked.number)
        if report.outcome != "fitted" or request is None:
            return
        key = LIST_KEYS[request.format]
        listed = replayed.ctx.to_provider("gemini_rest" if request.format == "gemini" else request.format)[key]
        if _unmarked(listed) != _unmarked(request.body[key]):
            where_not = first_difference(_unmarked(listed), _unmarked(request.body[key]))
            verdict.unrecorded.append(f"{where}: what is replayed is not what was sent: {where_not}")

    def _shared_sessions(self, nx: nexus.Engine, verdicts: Sequence[Verdict]) -> list[str]:
        """Return the sessions with texts of two conversations, and the notes that no session has whole."""
        faults: list[str] = []
        texts: dict[str, str] = {}
        for session in nx.sessions():
            text = json.dumps(msgspec.to_builtins(nx.history(session.label)))
            texts[session.label] = text
            names = [talk.name for talk in self._talks if talk.canary in text]
            if len(names) > 1:
                faults.append(f"session {session.label} has texts of {', '.join(names)}")
        for verdict in verdicts:
            whole = set(re.findall(r"end note-[\w.-]+ Q\w+", json.dumps(verdict.last_recorded)))
            own = [text for text in texts.values() if verdict.talk.canary in text]
            missing = [mark for mark in whole if not any(mark in text for text in own)]
            if missing:
                name = verdict.talk.name
                faults.append(
                    f"{name}: {len(missing)} notes of the last recorded list are in no session: {missing[:3]}"
                )
        return faults


def lost_results(format_: Any, original: Json, sent: Json) -> Iterator[str]:
    """Yield the newest results of a list that arrive neither whole nor with a mark that says what is missing."""
    key = LIST_KEYS[format_]
    received = results_of(format_, {key: event_of(format_, original)})
    arrived = [text for _, text in results_of(format_, sent)]
    stripped = {text.strip() for text in arrived}
    for call_id, text in received:
        if text.strip() in stripped:
            continue
        begin = _BEGIN.search(text)
        if begin is None or not any(begin[0] in other and MARK.search(other) for other in arrived):
            yield f"result {call_id}: {text[:60]!r}"


def first_difference(listed: list[Any], others: list[Any]) -> str:
    """Return the place where two lists differ first, with the beginnings of both."""
    for index in range(max(len(listed), len(others))):
        left, right = (json.dumps(each[index]) if index < len(each) else "" for each in (listed, others))
        if left == right:
            continue
        same = next((at for at, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), 0)
        shown = slice(max(same - 40, 0), same + 80)
        return f"item {index} of {len(listed)} and {len(others)}: {left[shown]} // {right[shown]}"
    return "nowhere"


def _faults(format_: Any, body: Json) -> list[str]:
    return CHECKS[format_](python_form(body) if format_ == "gemini" else body)


def _is_failed(asked: TappedRequest) -> bool:
    return b'"type": "response.failed"' in asked.answer


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {name: _unmarked(item) for name, item in value.items() if name != "cache_control"}
    content = fields.get("content")
    if isinstance(content, str):
        fields["content"] = [{"type": "text", "text": content}]
    return fields


COLUMNS = (
    "client", "turns", "requests", "cuts", "kills", "stops", "disconnects", "overflows", "429", "disk", "reruns", "mixed",
    "lost", "invalid", "over", "changed", "refused", "sessions", "replayed", "not recorded",
)  # fmt: skip


def table(verdicts: Iterable[Verdict]) -> list[str]:
    """Return the figures of the conversations as lines."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    for verdict in verdicts:
        counts = verdict.talk.counts
        causes = ", ".join(f"{number} {cause}" for cause, number in sorted(verdict.open_calls.items())) or "0"
        lists = (verdict.mixed, verdict.lost, verdict.invalid, verdict.over, verdict.changed, verdict.refused)
        happened = (
            counts.kills, counts.stops, counts.disconnects, counts.overflows, counts.rate_limits, counts.disk_faults,
            counts.reruns,
        )  # fmt: skip
        values = (verdict.talk.name, verdict.talk.turns, verdict.requests, verdict.cuts, *happened, *map(len, lists))
        rows.append((*map(str, values), str(verdict.sessions), str(verdict.replayed), causes))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

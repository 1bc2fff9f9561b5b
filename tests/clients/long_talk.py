"""Long conversations of clients: what the user asks, what the scripted model does, and what goes wrong on the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, Literal, TypeAlias

from clients.programs import Client, Home, environment_of, stop
from clients.proxy_process import ProxyProcess, wait_until
from clients.scripted_agent import ROUTE
from clients.tap import NUMBER_HEADER, Tap, TappedRequest
from nexus.testing.model_server import ModelRequest, Response, reply, respond
from nexus.testing.scripted_replies import Format
from nexus.types.message import ToolCall
from support.mirrored_body import LIST_KEYS
from support.validity import Recounter

SHORT_CHARS, LONG_CHARS, HUGE_CHARS = 900, 9_000, 28_000
"""Lengths of a note. Clients shorten longer results themselves."""

RETRY_S = 240
"""Seconds for a turn in which the client has to try again."""

MAX_RUNS = 4
"""Processes for one turn: a client that gives up is started again, as its user would."""

ANSWER = "I read the notes of this turn and they say what they say. " * 3

Fault: TypeAlias = Literal[
    "kill idle", "kill", "stop", "gone", "overflow", "overflow in stream", "rate limit", "file limit", "full disk"
]
"""What goes wrong in a turn: the proxy is killed between two answers, killed or stopped in one, its client is killed in one,
the upstream refuses once, or nothing can be written."""

_TOO_LONG: dict[Format, dict[str, Any]] = {
    "anthropic": {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long: 214023 tokens > 200000 maximum"},
        "request_id": "req_011CTscripted",
    },
    "openai": {
        "error": {
            "message": "This model's maximum context length is 128000 tokens. However, your messages resulted in 131045 "
            "tokens (129021 in the messages, 2024 in the functions). Please reduce the length of the messages or functions.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    },
    "responses": {
        "error": {
            "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "type": "invalid_request_error",
            "param": "input",
            "code": "context_length_exceeded",
        }
    },
    "gemini": {
        "error": {
            "code": 400,
            "message": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).",
            "status": "INVALID_ARGUMENT",
        }
    },
}
"""Refusals of a prompt that is too long, as the providers send them."""


def _failed_stream() -> bytes:
    """Return a stream of the Responses API that is refused as too long after it has begun."""
    response: dict[str, Any] = {
        "id": "resp_scripted",
        "object": "response",
        "status": "in_progress",
        "error": None,
        "output": [],
    }
    error = {"code": "context_length_exceeded", "message": _TOO_LONG["responses"]["error"]["message"]}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "sequence_number": 0, "response": response},
        {"type": "response.in_progress", "sequence_number": 1, "response": response},
        {"type": "response.failed", "sequence_number": 2, "response": {**response, "status": "failed", "error": error}},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def refusal(fault: Fault, format_: Format) -> Callable[[ModelRequest], Response]:
    """Return the step that refuses a request."""
    if fault == "overflow in stream":
        return respond(200, _failed_stream(), **{"content-type": "text/event-stream"})
    if fault == "overflow":
        return respond(400, _TOO_LONG[format_])
    body: dict[str, Any] = {
        "error": {"type": "rate_limit_error", "message": "Too many requests. Try again later.", "code": 429}
    }
    if format_ == "anthropic":
        body["type"] = "error"
    if format_ == "gemini":
        body["error"]["status"] = "RESOURCE_EXHAUSTED"
    return respond(429, body, **{"retry-after": "1", "content-type": "application/json"})


@dataclass
class Counts:
    """What happened to a conversation beside its requests."""

    kills: int = 0
    stops: int = 0
    disconnects: int = 0
    overflows: int = 0
    rate_limits: int = 0
    disk_faults: int = 0
    reruns: int = 0
    """Turns that the client did not finish alone."""


@dataclass
class Talk:
    """One conversation: its client, its tap, and the notes of its turns."""

    name: str
    client: Client
    tap: Tap
    turns: int
    home: Home
    counts: Counts = field(default_factory=Counts)
    failures: list[str] = field(default_factory=list)
    upstream: dict[int, ModelRequest] = field(default_factory=dict)
    """The last request that arrived upstream, by the number of the client's."""
    resent: list[ModelRequest] = field(default_factory=list)
    """Requests that arrived upstream before the last one of the same number."""
    unsaved: dict[str, str] = field(default_factory=dict)
    """What the proxy said of calls while nothing could be written, by the call's id."""
    all_talks: tuple[Talk, ...] = ()
    """The conversations of the proxy at this time, with this one."""
    turn: int = 0
    fault: Fault | None = None
    began: Event = field(default_factory=Event)
    _environment: dict[str, str] = field(default_factory=dict)
    count: Callable[[dict[str, Any]], int] = field(default_factory=lambda: Recounter().count)
    """Counts the tokens of a body, independently of the proxy."""
    _answers: int = 0

    @property
    def canary(self) -> str:
        """A word that is in this conversation alone."""
        return "Q" + hashlib.sha256(self.name.encode()).hexdigest()[:12]

    # the user ----------------------------------------------------------------------------------------------------

    def set_up(self, outer: str) -> None:
        """Make the client's folders; what it asks of others goes to the address `outer`, which refuses."""
        self._environment = environment_of(self.client, self.home)
        self._environment |= {"HTTP_PROXY": outer, "HTTPS_PROXY": outer}
        self.home.write("work/note-0.txt", self.note("note-0.txt"))

    def notes(self, turn: int) -> list[list[str]]:
        """Return the notes that the model reads in a turn, in the groups that it reads at once."""
        first = [f"note-{turn}-0.txt"]
        if turn % 10 == 7:
            return [first, *([f"note-{turn}-{index}.txt"] for index in range(1, 5))]
        if turn % 5 == 1:
            return [first, [f"note-{turn}-1.txt", f"note-{turn}-2.txt"]]
        return [first]

    def note(self, name: str) -> str:
        """Return the text of a note, with its name and the canary at both ends."""
        turn = int(name.split("-")[1].partition(".")[0])
        chars = SHORT_CHARS
        if turn % 6 == 5 or turn % 10 == 7:
            chars = LONG_CHARS
        if turn % 20 == 13:
            chars = HUGE_CHARS
        lines: list[str] = []
        while sum(map(len, lines)) < chars:
            lines.append(f"Crate {len(lines)} of {self.canary} in {name} goes to pier {7 * len(lines) % 31}.\n")
        return f"begin {name} {self.canary}\n{''.join(lines)}end {name} {self.canary}\n"

    def prompt(self, turn: int) -> str:
        """Return what the user asks: the same in all conversations."""
        return f"Turn {turn} of {self.turns}: what do the notes say?"

    def run(self, proxy: ProxyProcess | None, faults: dict[int, Fault]) -> None:
        """Hold the conversation. Without a proxy it stays as it is; failures are noted."""
        for turn in range(self.turns):
            self.turn = turn
            for name in (name for names in self.notes(turn) for name in names):
                self.home.write(f"work/{name}", self.note(name))
            try:
                self._run_turn(proxy, faults.get(turn))
            except AssertionError as error:
                self.failures.append(f"turn {turn} ({faults.get(turn)}): {error}")
                if len(self.failures) > 3:
                    return

    def _run_turn(self, proxy: ProxyProcess | None, fault: Fault | None) -> None:
        if proxy is not None and fault == "kill idle":
            proxy.kill()
            self.counts.kills += 1
            proxy.start()
        if proxy is not None and fault in ("file limit", "full disk"):
            self._run_without_disk(proxy, fault)
            return
        self.began.clear()
        self.fault = fault
        self._run_client(proxy, fault)
        self.fault = None

    def _run_without_disk(self, proxy: ProxyProcess, fault: Fault) -> None:
        before = [max(len(talk.tap.requests) - 2, 0) for talk in self.all_talks]  # the last ones may not have ended
        self.counts.disk_faults += 1
        if fault == "full disk":
            proxy.fill_disk()
        else:
            proxy.limit_files(4_096)
        try:
            self._run_client(None, None)
        finally:
            if fault == "full disk":
                proxy.empty_disk()
            else:
                proxy.end_limit()
            for talk, number in zip(self.all_talks, before, strict=True):
                talk.note_unsaved(proxy, talk.tap.requests[number:])

    def note_unsaved(self, proxy: ProxyProcess, requests: Sequence[TappedRequest]) -> None:
        """Note what the proxy says of calls that are not recorded."""
        for asked in requests:
            report = proxy.report_of(asked.call_id) if asked.call_id else None
            if report is not None and not report["session"]:
                self.unsaved[asked.call_id] = "; ".join([*report["reasons"], report["error"]])

    def _run_client(self, proxy: ProxyProcess | None, fault: Fault | None) -> None:
        """Run the client until it has finished the turn."""
        errors: list[str] = []
        for run in range(MAX_RUNS):
            is_first = not self.turn and not run
            with self.client.start_turn(
                self.home, self._environment, self.prompt(self.turn), is_first=is_first
            ) as running:
                if not run and fault in ("kill", "stop", "gone"):
                    self._interrupt(proxy, fault, running)
                if not run and fault == "gone":
                    continue
                try:
                    printed = self.client.end_turn(running, RETRY_S)
                except AssertionError as error:
                    errors.append(str(error))
                    self.counts.reruns += 1
                    continue
            if f"Turn {self.turn} of {self.canary} is done." in printed:
                return
            errors.append(f"no answer: {printed[-300:]}")
            self.counts.reruns += 1
        raise AssertionError(f"not finished after {MAX_RUNS} runs: {errors}")

    def _interrupt(self, proxy: ProxyProcess | None, fault: Fault, running: Any) -> None:
        """Do the fault while an answer is on its way."""
        wait_until(lambda: self.began.is_set() or running.poll() is not None, "an answer began")
        if fault == "gone":
            self.counts.disconnects += 1
            stop(running)
            return
        assert proxy is not None
        if fault == "kill":
            self.counts.kills += 1
            proxy.kill()
        else:
            self.counts.stops += 1
            proxy.stop()
        proxy.start()

    # the model ---------------------------------------------------------------------------------------------------

    def is_side(self, model: str) -> bool:
        """Return True for a title, route or summary, which is no part of the conversation."""
        return any(part in model for part in self.client.side_models)

    def respond(self, request: ModelRequest, number: int) -> Response:
        """Answer a request of this conversation."""
        if number in self.upstream:
            self.resent.append(self.upstream[number])
        self.upstream[number] = request
        self._answers += 1
        reply_id = f"{self._answers:04d}"
        if self.is_side(request.model):
            settings: dict[str, Any] = request.body.get("generationConfig") or {}
            is_json = settings.get("responseMimeType") == "application/json"
            return reply(ROUTE if is_json else f"Notes {self.canary}", reply_id=reply_id)(request)
        if self.fault in ("overflow", "overflow in stream", "rate limit"):
            fault = self.fault
            self.fault = None
            self.counts.overflows += fault != "rate limit"
            self.counts.rate_limits += fault == "rate limit"
            return refusal(fault, request.format)(request)
        interval_s = 0.0
        names = self._next_notes(number)
        is_interrupted = self.fault in ("kill", "stop", "gone") and (not names or self.turn % 2 == 0)
        if is_interrupted and not self.began.is_set():
            interval_s = 0.15
        text = f"I read. {ANSWER}" if interval_s else "I read the notes."
        calls = [self._call(request, reply_id, name) for name in names]
        if not names:
            text = f"{ANSWER} Turn {self.turn} of {self.canary} is done."
        # What it reports is what it got, counted: the proxy measures its own counts by that.
        tokens = self.count(request.body)
        response = reply(
            text, *calls, reply_id=reply_id, event_interval_s=interval_s, input_tokens=tokens, output_tokens=60
        )(request)
        if interval_s:
            self.began.set()
        return response

    def _next_notes(self, number: int) -> list[str]:
        """Return the notes that the model reads next, by the client's own list; none when it has read all."""
        if not self.client.tool:
            return []
        body = self.tap.requests[number].body
        listed = json.dumps(body[LIST_KEYS[self.client.format]])
        since = listed.rpartition(f"Turn {self.turn} of {self.turns}:")[2]
        for names in self.notes(self.turn):
            if not all(f"begin {name}" in since for name in names):
                return names
        return []

    def _call(self, request: ModelRequest, reply_id: str, note: str) -> ToolCall:
        tool = self.client.tool
        number = note.removesuffix(".txt").replace("-", "_")
        call_id = "" if request.format == "gemini" else f"call_{self.canary}_{reply_id}_{number}"
        if tool == "exec":
            return ToolCall(call_id, tool, f'const r = await tools.exec_command({{cmd: "cat {note}"}}); text(r)')
        arguments = {"name": note} if tool == "read_note" else {"command": f"cat {note}", "description": "Reads a note"}
        return ToolCall(call_id, tool, json.dumps(arguments))


class Upstream:
    """The scripted models of several conversations: each request says by its number whose it is."""

    def __init__(self) -> None:
        self.talks: dict[str, Talk] = {}
        self.strays: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> Response:
        """Answer a request."""
        name, _, number = request.headers.get(NUMBER_HEADER, "").partition("/")
        if name not in self.talks:
            self.strays.append(request)
            return Response(404, b"{}")
        return self.talks[name].respond(request, int(number))


def new_talk(name: str, client: Client, relay: Tap, turns: int, folder: Path, path: str) -> Talk:
    """Return a conversation whose client has a home of its own; `path` stands before the client's paths."""
    return Talk(name, client, relay, turns, Home(folder / name, relay.url + path))

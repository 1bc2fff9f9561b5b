"""The model of the three turns: it reads a note with the client's tool, then answers. In the second turn it reads two."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from clients.programs import Client
from nexus.testing.model_server import ModelRequest, Response, reply
from nexus.types.message import ToolCall
from support.mirrored_body import LIST_KEYS

TURNS = 3
NOTES = {0: ("note-0.txt",), 1: ("note-1.txt", "note-2.txt"), 2: ("note-3.txt",)}
"""Notes that the model reads in each turn."""

ROUTE = json.dumps({"complexity_reasoning": "short", "complexity_score": 10})


def prompt(turn: int) -> str:
    """Return what the user asks in a turn."""
    return f"Turn {turn} of {TURNS}: what do the notes say?"


def note_text(name: str, chars: int) -> str:
    """Return the text of a note, which has its name at both ends."""
    line = f"The crane of {name} lifts crates until the tide turns.\n"
    return f"begin {name}\n{line * (chars // len(line))}end {name}\n"


class ScriptedAgent:
    """The scripted model of one conversation; it calls tools once in each turn.

    `usage` returns the tokens that it reports for a request, by the names of `reply`.
    """

    def __init__(self, client: Client, usage: Callable[[ModelRequest], dict[str, int]] = lambda _: {}) -> None:
        self._client = client
        self._usage = usage
        self._count = 0
        self._turns = set[int]()

    def __call__(self, request: ModelRequest) -> Response:
        """Answer a request: calls of tools to the first one of a turn, text to others."""
        self._count += 1
        number = str(self._count)
        if self.is_side_request(request.model):
            is_json = (request.body.get("generationConfig") or {}).get("responseMimeType") == "application/json"
            return reply(ROUTE if is_json else "Notes of the harbor", reply_id=number)(request)
        listed = json.dumps(request.body[LIST_KEYS[request.format]])
        turn = int(re.findall(r"Turn (\d) of", listed)[-1])
        if not self._client.tool or turn in self._turns:
            return reply(f"Turn {turn} is done.", reply_id=number, **self._usage(request))(request)
        self._turns.add(turn)
        calls = (self._call(request, number, name) for name in NOTES[turn])
        return reply("I read the notes.", *calls, reply_id=number, **self._usage(request))(request)

    def is_side_request(self, model: str) -> bool:
        """Return True for a title or a route, which is no part of the conversation."""
        return any(part in model for part in self._client.side_models)

    def _call(self, request: ModelRequest, number: str, note: str) -> ToolCall:
        tool = self._client.tool
        call_id = "" if request.format == "gemini" else f"call_{number}_{note[5]}f3a9c2e8b1d7"
        if tool == "exec":
            return ToolCall(call_id, tool, f'const r = await tools.exec_command({{cmd: "cat {note}"}}); text(r)')
        arguments = {"name": note} if tool == "read_note" else {"command": f"cat {note}", "description": "Reads a note"}
        return ToolCall(call_id, tool, json.dumps(arguments))

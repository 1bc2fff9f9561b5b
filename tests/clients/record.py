"""Writes the fixtures of `tests/interchange/clients` from requests that the clients send here: `python -m clients.record`.

Run it with `PYTHONPATH=src:tests`. Shapes, roles, keys, names of tools and properties are the clients'. Their texts are
replaced by others of a tenth of the length, ids and times by invented ones; equal texts stay equal.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nexus
from clients.installation import FOLDER
from clients.programs import CLIENTS, Client
from clients.test_clients import hold_conversation
from support.client_requests import LARGE, ClientRequest
from support.mirrored_body import LIST_KEYS, Json

FIXTURES = Path(__file__).resolve().parents[1] / "interchange" / "clients"

NOTE_CHARS = 200

OWN_CHARS = 100
"""The scripted model's calls are shorter; a client's text may mention the same tools."""

_WORDS = [
    "harbor",
    "crane",
    "tide",
    "rope",
    "crate",
    "barge",
    "lamp",
    "pilot",
    "anchor",
    "ledger",
    "quay",
    "gull",
    "buoy",
    "signal",
    "mast",
    "cargo",
]
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_MILLISECONDS = re.compile(r"(?<!\d)1[7-9]\d{11}(?!\d)")
_SESSION = re.compile(r"ses_\w{20,}")
_NOTE = re.compile(r"begin note-\d\.txt.*end note-\d\.txt", re.DOTALL)
_PROMPT = re.compile(r'"?Turn \d of \d: what do the notes say\?"?\s*')
_SHORT_NAME = re.compile(r"[\w.:@$/+-]{1,80}")
_WRITTEN = re.compile(r"\s*(?:I read the notes\.|Turn \d is done\.|Notes of the harbor)\s*")
_OWN = ("tools.exec_command", "cat note-", "Reads a note", '{"name": "note-', '{"complexity')


class Rewriter:
    """Replaces a client's texts by invented ones; the same text always by the same one."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._ids: dict[str, str] = {}

    def value(self, value: Any) -> Any:
        """Return a JSON value with invented texts."""
        if isinstance(value, dict):
            return {name: self.value(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        """Return a text as it is if this program or its scripted model wrote it, or if it is a name; else an invented one."""
        text = _MILLISECONDS.sub(self._time, _SESSION.sub(self._session, _UUID.sub(self._uuid, text)))
        if note := _NOTE.search(text):
            return f"Output:\n{note[0].encode().decode('unicode_escape')}\n"
        has_own = len(text) < OWN_CHARS and any(part in text for part in _OWN)
        is_own = has_own or _PROMPT.fullmatch(text) or _WRITTEN.fullmatch(text)
        if is_own or not text.strip() or (_SHORT_NAME.fullmatch(text) and not text.startswith("/")):
            return text
        return self._texts.setdefault(text, self._invented(len(text), len(self._texts) + 1))

    def _invented(self, length: int, number: int) -> str:
        count = max(length // 30, 2)
        words = " ".join(_WORDS[(number * 7 + index * (number % 5 + 1)) % len(_WORDS)] for index in range(count))
        return f"Text {number}: {words}."

    def _uuid(self, found: re.Match[str]) -> str:
        return self._ids.setdefault(found[0], f"00000000-0000-4000-8000-{len(self._ids) + 1:012d}")

    def _session(self, found: re.Match[str]) -> str:
        return self._ids.setdefault(found[0], f"ses_{len(self._ids) + 1:026d}")

    def _time(self, found: re.Match[str]) -> str:
        return self._ids.setdefault(found[0], str(1_790_000_000_000 + len(self._ids) + 1))


def fixture(client: Client, requests: Sequence[ClientRequest]) -> Json:
    """Return a client's conversation as a fixture.

    A request has the fields that differ from the one before of its kind, and of its list what follows the `repeats` first
    messages of the earlier list.
    """
    rewriter, before = Rewriter(), dict[bool, Json]()
    written: list[Json] = []
    key = LIST_KEYS[client.format]
    for request in requests:
        body = rewriter.value(request.body)
        earlier = before.get(request.is_side, {})
        before[request.is_side] = body
        pairs = zip(body[key], earlier.get(key, ()), strict=False)
        repeats = next((index for index, (new, old) in enumerate(pairs) if new != old), len(earlier.get(key, ())))
        changed = {name: value for name, value in body.items() if name not in earlier or earlier[name] != value}
        removed = dict.fromkeys(name for name in earlier if name not in body)
        written.append(
            {
                "is_side": request.is_side,
                "model": request.model,
                "conversation": rewriter.text(request.conversation),
                "reply": _reply(client, request.reply),
                "repeats": repeats,
                "body": {**changed, **removed, key: body[key][repeats:]},
            }
        )
    return {"client": client.name, "format": client.format, "requests": written}


def _reply(client: Client, reply: nexus.AgentResult) -> Json:
    message = reply.messages[-1]
    has_ids = client.format != "gemini"
    calls = [[call.id if has_ids else "", call.name, call.arguments] for call in message.calls()]
    return {"text": message.text(), "calls": calls}


def main(names: Sequence[str]) -> None:
    """Record the named clients, or all."""
    versions = json.loads((FOLDER / "installed.json").read_text())
    for client in CLIENTS:
        if names and client.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            outcomes, failures = hold_conversation(client, Path(folder), LARGE, NOTE_CHARS)
        if failures:
            print(f"{client.name}: {failures}")
        recorded = fixture(client, [outcome.request for outcome in outcomes if outcome.request.reply is not None])
        version = next(version for package, version in versions.items() if client.name in package)
        text = json.dumps({"version": version, **recorded}, indent=1, ensure_ascii=False)
        (FIXTURES / f"{client.name}.json").write_text(f"{text}\n")
        print(f"{client.name}: {len(recorded['requests'])} requests, {len(text):,} characters")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The model of a year, served in a process of its own, which judges every request body that arrives.

A body that the providers' own types refuse is answered with an error, and so is one that is larger than the window by the
count of another tokenizer. What a tool returned is read from the body, as the model receives it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.testing.model_server import ModelRequest, ModelServer, Response, fail, model_server, overflow, reply
from nexus.types.message import ToolCall
from torture.year_script import ASKING, Fact, Year

OPENED_AT_MOST = 10
"""Messages that the model opens for one question."""

_HIT = re.compile(r"^(\d+\.\d+) \(turn[^)]*\): (.*)", re.MULTILINE)
_CAPITAL = re.compile(r"(?<=[a-z])([A-Z])")
_OWN_JSON = frozenset({"args", "response", "parameters_json_schema"})

_Replies: TypeAlias = Generator[tuple[str, list[ToolCall]], str, None]


class Question(Struct):
    """A question for a fact, and how it was answered."""

    turn: int
    fact: str
    in_prompt: bool
    """True if the prompt contained the fact before the search, in a summary or an excerpt."""
    hits: int = 0
    opened: int = 0
    found: bool = False


class Judgment(Struct):
    """Everything that the server counted."""

    bodies: dict[str, int] = {}
    overflows: int = 0
    problems: list[str] = []
    questions: list[Question] = []
    prompt_tokens: int = 0
    largest_prompt: int = 0


class ScriptedModel:
    """Plays the script. A turn begins with the first request after an answer.

    Args:
        year: The script.
    """

    def __init__(self, year: Year) -> None:
        tests = str(Path(__file__).resolve().parents[1] / "tests")
        if tests not in sys.path:
            sys.path.append(tests)
        from support.validity import CHECKS, Recounter

        self.year, self.server = year, ModelServer("", ())
        self._checks, self._count = CHECKS, Recounter().count
        self._bodies, self._judgment = Counter[str](), Judgment()
        self._turn = 0
        self._replies: _Replies = _ended()

    @property
    def judgment(self) -> Judgment:
        """What was counted so far."""
        return replace(self._judgment, bodies=dict(self._bodies))

    def __call__(self, request: ModelRequest) -> Response:
        """Judge a request's body, and answer with the script's next reply."""
        self.server.requests.clear()  # a year of bodies is larger than the memory
        judgment = self._judgment
        problems = self._checks[request.format](package_body(request))
        if problems:
            judgment.problems.append(f"turn {self._turn}, {request.format}: {problems[0]}")
            return fail(400, problems[0])(request)
        tokens = self._count(request.body)
        if tokens > self.year.window:
            judgment.overflows += 1
            return overflow(self.year.window, tokens)(request)
        self._bodies[request.format] += 1
        judgment.prompt_tokens += tokens
        judgment.largest_prompt = max(judgment.largest_prompt, tokens)
        try:
            text, calls = self._replies.send(newest_text(request.body))
        except StopIteration:
            self._turn += 1
            self._replies = self._new_turn(request)
            text, calls = next(self._replies)
        thinking = f"Turn {self._turn}." if request.format == "anthropic" and self._turn % 5 == 0 else ""
        return reply(text, *calls, thinking=thinking, input_tokens=tokens)(request)

    def _new_turn(self, request: ModelRequest) -> _Replies:
        fact = self.year.asked.get(self._turn)
        if fact is not None:
            yield from self._recall(fact, in_prompt=fact.secret in request.data.decode())
        else:
            for step, calls in enumerate(self.year.steps(self._turn)):
                yield (f"Turn {self._turn}, step {step}." if self._turn % 2 else ""), calls
        yield self.year.answer(self._turn), []

    def _recall(self, fact: Fact, *, in_prompt: bool) -> _Replies:
        """Search for a fact and open hits until one contains it.

        As a model that reads the list: no earlier questions, and first those whose excerpts have most of the words.
        """
        question = Question(self._turn, fact.name, in_prompt)
        self._judgment.questions.append(question)
        hits = _HIT.findall((yield "I search for it.", [self._call(0, query=fact.keywords)]))
        references = by_words([hit for hit in hits if ASKING not in hit[1]], fact.keywords)
        question.hits = len(hits)
        for number, reference in enumerate(references[:OPENED_AT_MOST], 1):
            opened = yield "", [self._call(number, reference=reference, query=fact.keywords)]
            question.opened = number
            if fact.secret in opened:
                question.found = True
                return

    def _call(self, place: int, **arguments: str) -> ToolCall:
        return ToolCall(f"call_{self._turn}_{place}", "recall", json.dumps(arguments))


def by_words(hits: list[tuple[str, str]], keywords: str) -> list[str]:
    """Return the references of hits, those first whose excerpts have most of the words."""
    words = keywords.casefold().split()
    ordered = sorted(hits, key=lambda hit: -sum(word in hit[1].casefold() for word in words))
    return [reference for reference, _ in ordered]


def package_body(request: ModelRequest) -> dict[str, Any]:
    """Return a body as the arguments of its provider's package, which are what the official types describe."""
    body = {key: value for key, value in request.body.items() if key not in ("stream", "stream_options")}
    if request.format != "gemini":
        return body
    config = {**body.pop("generationConfig", {}), **{key: body.pop(key) for key in list(body) if key != "contents"}}
    return {"model": request.model, "contents": _snake_case(body["contents"]), "config": _snake_case(config)}


def _snake_case(node: Any) -> Any:
    """Return JSON with the names of the Python package; the tools' own JSON is unchanged."""
    if isinstance(node, list):
        return [_snake_case(item) for item in node]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(node, dict):
        return node
    names: dict[str, Any] = {_CAPITAL.sub(r"_\1", key).lower(): value for key, value in node.items()}  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    return {name: value if name in _OWN_JSON else _snake_case(value) for name, value in names.items()}


def newest_text(body: dict[str, Any]) -> str:
    """Return all texts of a body's last message."""
    messages = next(body[name] for name in ("contents", "input", "messages") if name in body)
    return "\n".join(_texts(messages[-1]))


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, (list, dict)):
        for item in node.values() if isinstance(node, dict) else node:  # pyright: ignore[reportUnknownVariableType]
            yield from _texts(item)


def _ended() -> _Replies:
    """Return replies that are at their end."""
    replies: _Replies = ((text, []) for text in ())
    next(replies, None)
    return replies


class Served:
    """The running process: its address, and at the end its judgment."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.judgment = Judgment()


@contextmanager
def served(year: Year) -> Generator[Served]:
    """Run the server in a process of its own; its judgment is there once the block has ended."""
    command = [sys.executable, "-m", __name__, *map(str, (year.turns, year.seed, year.window))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            running = Served(process.stdout.readline().strip())
            yield running
            text, _ = process.communicate()
            running.judgment = msgspec.json.decode(text, type=Judgment)
        finally:
            process.kill()


def main() -> None:
    """Serve until the standard input ends; then print the judgment."""
    model = ScriptedModel(Year(*map(int, sys.argv[1:4])))
    with model_server(model) as server:
        model.server = server
        print(server.anthropic_url, flush=True)
        sys.stdin.read()
    print(msgspec.json.encode(model.judgment).decode())


if __name__ == "__main__":
    main()

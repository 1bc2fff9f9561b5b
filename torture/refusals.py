"""A provider that counts for itself and says no in any of the ways that are known, with its own true numbers.

Its window is not the one that is believed, its vocabulary is another one, and it refuses in a sentence of the corpus that
the tests have (`tests/providers/errors/corpus.py`), for tokens, for tokens with the answer's, or for bytes; or it takes what does not fit
without a word. Rate limits, network errors and other refusals of the corpus come in between.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

from nexus.context import AssembledContext
from nexus.providers.errors.classifier import classify
from nexus.providers.errors.error_rules import parse_number
from nexus.tokens.counter import get_counter

TESTS = Path(__file__).parents[1] / "tests"
sys.path.append(str(TESTS))
CASES: list[Any] = import_module("providers.errors.corpus").CASES
SHAPES: Any = import_module("providers.errors.shapes").SHAPES
RECOUNT: Any = import_module("support.recount").Recounter()

OVERFLOWS = [case for case in CASES if case.kind == "overflow"]
RATES = [case for case in CASES if case.kind == "rate_limit"]
OTHERS = [case for case in CASES if case.kind == "other" and case.shape not in ("status", "pair")]
SILENT = ("stop reason", "over", "empty", "exactly", "block", "less")
"""Ways to take what does not fit: those that `nexus.providers.errors.classifier` knows. `less` has no answer: with one it is taken."""

ANSWER_FIRST = "vllm setting"
"""The case that is about the answer's tokens alone."""

_NUMBER: Final = re.compile(r"(?<![\w.])\d{1,3}(?:[,.\u202f\u00a0]\d{3})+(?!\d)|(?<![\w.])\d{2,12}(?:\.0|k\b)?(?![\w])")
_RAISED_AS: Final = {"pair": "stainless", "bytes": "stainless", "body": "stainless", "status": "stainless"}
"""Shapes that are no exceptions, and the exception in which a client's package would bring them."""


@dataclass
class Sent:
    """One request as the provider got it: what it counted, and what it did."""

    ctx: AssembledContext
    body: dict[str, Any]
    tokens: int
    output: int
    size: int
    fits: bool
    marks: int = 0
    refused: str = ""
    told: int = 0
    silent: str = ""
    error: BaseException | None = None


@dataclass
class Provider:
    """The provider of one round. `count` is its vocabulary, `form` the face's method, `case` how it says no."""

    dice: random.Random
    window: int
    form: str
    case: Any
    count: Callable[[dict[str, Any]], int]
    silent: str = ""
    most_bytes: int = 0
    trouble: float = 0.0
    sane: bool = False
    seen: list[Sent] = field(default_factory=list[Sent])

    def send(self, ctx: AssembledContext) -> dict[str, Any]:
        """The answer, or whatever it raises."""
        body = getattr(ctx, f"to_{self.form}")()
        size = len(json.dumps(body, ensure_ascii=False))
        one = Sent(ctx, body, self.count(body), _asked_output(body), size, fits=True)
        self.seen.append(one)
        if self.dice.random() < self.trouble:
            one.error = self._trouble()
            raise one.error
        one.fits = self.sane or self._fits(one)
        if one.fits:
            return self.answer(one, one.tokens)
        if self.silent and (reply := self._in_silence(one)) is not None:
            return reply
        one.refused, one.told = f"{self.case.provider or 'any'}: {self.case.name}", self._told()
        one.error = refusal(self.case, self.window, one.tokens, one.output, _believed(ctx))
        raise one.error

    def answer(self, one: Sent, tokens: int, text: str | None = None, stop: str = "") -> dict[str, Any]:
        """A reply in the form of the request; at times a call of a tool."""
        calls = text is None and bool(one.ctx.tools) and self.dice.random() < 0.5
        name = f"c{len(self.seen)}_{self.dice.randrange(1 << 40):x}"
        said = f"This is answer {name}." if text is None else text
        if self.form == "anthropic":
            return _messages(one.ctx.model, said, name if calls else "", tokens, stop)
        return _chat(one.ctx.model, said, name if calls else "", tokens, stop)

    def _told(self) -> int:
        return self.window if self.case.limit else 0

    def _fits(self, one: Sent) -> bool:
        if self.most_bytes:
            return one.size <= self.most_bytes
        if self.case.name == ANSWER_FIRST and one.output > self.window:
            return False
        asked = one.output if self.case.part == "output" and not self.silent else 0
        return one.tokens + asked <= self.window

    def _trouble(self) -> Exception:
        which = self.dice.randrange(4)
        if which == 0:
            return raised(self.dice.choice(RATES))
        if which == 1:
            return raised(self.dice.choice(OTHERS))
        return ConnectionError("the connection was reset") if which == 2 else TimeoutError("timed out")

    def _in_silence(self, one: Sent) -> dict[str, Any] | None:
        """A reply to a cut or overfull prompt that shows what it is, None where it would not show."""
        believed, sent = _believed(one.ctx), one.ctx.token_budget.used.total
        blocks = self.window // 1024 * 1024
        ways: dict[str, tuple[bool, int, str, str]] = {
            "stop reason": (True, one.tokens, "I had no", "model_context_window_exceeded"),
            "over": (one.tokens > believed, one.tokens, "hm", ""),
            "empty": (self.window * 100 >= believed * 99, self.window, "", "length"),
            "exactly": (self.window == believed, self.window, "I see the end of it", ""),
            "block": (0 < blocks <= sent * 0.8, blocks, "I see the end of it", ""),
            "less": (0 < self.window * 2 < sent, self.window, "", "length"),
        }
        shows, tokens, text, stop = ways.get(self.silent, (False, 0, "", ""))
        if not shows:
            return None
        one.silent = self.silent
        return self.answer(one, tokens, text, stop)


def vocabularies(
    dice: random.Random, image_tokens: int, *, most: bool = False
) -> tuple[str, Callable[[dict[str, Any]], int]]:
    """A way to count a body: o200k by a second tokenizer, times a ratio; another vocabulary; or by characters.

    With `most`, many more tokens than by o200k.
    """
    kind = "ratio" if most else dice.choice(("ratio", "ratio", "ratio", "cl100k", "characters"))
    ratio = round(dice.uniform(1.5, 2.2), 3) if most else dice.choice((1.0, round(dice.uniform(0.7, 2.2), 3)))

    def counted(body: dict[str, Any]) -> int:
        if kind == "ratio":
            text = int(RECOUNT.count(body) * ratio)
        else:
            said = json.dumps(body, ensure_ascii=False)
            text = _cl100k(said) if kind == "cl100k" else _letters(said)
        return text + image_tokens * _images(body)

    return kind, counted


def refusal(case: Any, window: int, tokens: int, output: int, believed: int) -> Exception:
    """The case's error with these numbers in the place of its own."""
    return raised(case, _with_numbers(case, window, tokens, output, believed))


def raised(case: Any, body: Any = None) -> Exception:
    """The case as an exception."""
    shape = _RAISED_AS.get(case.shape, case.shape)
    body = case.body if body is None else body
    if isinstance(body, (dict, list, str, tuple)) or body is None:
        made = SHAPES[shape](case.status, "" if body is None else body)
    else:
        made = SHAPES[shape](case.status, str(body))
    return made


def _with_numbers(case: Any, window: int, tokens: int, output: int, believed: int) -> Any:
    """The body with the true numbers where it has numbers of tokens; others, as statuses, stay."""
    found = classify(case.error(), provider=case.provider, window=8_192)
    whole = tokens + (output if found.output_tokens else 0)
    new = {found.output_tokens: output, found.input_tokens: tokens, found.requested: whole, found.limit: window}
    if not found.limit and found.requested > 8_192:
        new[found.requested - 8_192] = max(tokens - believed, 2)  # -1 is a setting
    if case.name == ANSWER_FIRST:
        new[found.requested] = output
    new.pop(0, None)
    inputs = found.input_tokens
    alike = iter((window, output)) if found.limit == found.output_tokens else None

    def replaced(match: re.Match[str]) -> str:
        value = parse_number(match[0])
        if alike is not None and value == found.limit:
            return _written(next(alike), match[0])
        if value in new:
            return _written(new[value], match[0])
        if 500 < value < inputs and found.limit and value not in (3051, 1261, 2013):
            return str(tokens * value // inputs)
        return match[0]

    def walked(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: walked(value) for key, value in cast("dict[str, Any]", node).items()}
        if isinstance(node, (list, tuple)):
            values = [walked(value) for value in cast("list[Any]", node)]
            return values if isinstance(node, list) else tuple(values)
        if isinstance(node, int) and not isinstance(node, bool):
            return new.get(node, node)
        return _NUMBER.sub(replaced, node) if isinstance(node, str) else node

    return walked(case.body)


def _written(value: int, like: str) -> str:
    """The number as the other one is written."""
    separator = next((letter for letter in ",\u202f\u00a0" if letter in like), "")
    if like.endswith(".0"):
        return f"{value}.0"
    return f"{value:,}".replace(",", separator) if separator else str(value)


def _believed(ctx: AssembledContext) -> int:
    return ctx.accounting.model_info.context_tokens


def _asked_output(body: dict[str, Any]) -> int:
    """The tokens that the request asks for as an answer, 0 if it does not say."""
    config = body.get("config") or body
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    return next((config[name] for name in names if isinstance(config.get(name), int)), 0)


def _cl100k(text: str) -> int:
    return get_counter("cl100k_base").count(text)


def _letters(text: str) -> int:
    """A token for three and a half characters, and one for each that is not ASCII."""
    wide = len(text.encode("utf-8", "replace")) - len(text)
    return int(len(text) / 3.5) + wide // 2


def _images(body: dict[str, Any]) -> int:
    said = json.dumps(body)
    return sum(
        said.count(mark)
        for mark in ('"type": "image_url"', '"type": "input_image"', '"type": "image"', '"inline_data"')
    )


def _chat(model: str, text: str, call: str, tokens: int, stop: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if call:
        function = {"name": "run", "arguments": '{"command": "make"}'}
        message["tool_calls"] = [{"id": call, "type": "function", "function": function}]
    reason = stop or ("tool_calls" if call else "stop")
    usage = {"prompt_tokens": tokens, "completion_tokens": len(text) // 4, "total_tokens": tokens + len(text) // 4}
    choice = {"index": 0, "finish_reason": reason, "message": message}
    return {"id": "1", "object": "chat.completion", "model": model, "choices": [choice], "usage": usage}


def _messages(model: str, text: str, call: str, tokens: int, stop: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    if call:
        content.append({"type": "tool_use", "id": call, "name": "run", "input": {"command": "make"}})
    reason = {"length": "max_tokens"}.get(stop, stop) or ("tool_use" if call else "end_turn")
    usage = {"input_tokens": tokens, "output_tokens": len(text) // 4}
    return {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": reason,
        "usage": usage,
    }

"""How far counts are from what a provider reports, by kind of content: before the first report, and after some.

Nothing is asked of a provider here. Tokenizers that are not Nexus's own stand in for one: a call's true tokens are those
of its texts in the other vocabulary, with the framing that OpenAI documents (three tokens and the role for each message,
three for the reply). A session of twelve calls reads pieces of one kind, the first as a user's text, the others as
results of tools; each reply reports the true tokens.

Counts by Claude's and Gemma's tokenizers are shipped with their texts in `reference_counts.json`, because they need
packages and a version of Python that are not always there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec
from langchain_core.messages.utils import count_tokens_approximately
from msgspec import Struct

import nexus
from benchmarks.bodies import Body, Remembered
from benchmarks.kinds import KINDS, MIXED, PIECE_CHARS, pieces
from benchmarks.policies import as_langchain
from benchmarks.report import Cell, Outcome, Table, Target
from benchmarks.vocabularies import Vocabulary, vocabularies
from nexus.types.message import ToolCall, assistant, tool

COMMAND = "python -m benchmarks counter_error"
CALLS = 12
DATA = f"generated and installed texts of {len(KINDS)} kinds; {CALLS} calls per session, each with {PIECE_CHARS:,} more characters"
TOOLS = ({"name": "read", "description": "Reads the next piece.", "parameters": {"type": "object"}},)
BUDGET = 1_000_000
TOLERATED = -2.0
"""Per cent; what an under-count may be once ten reports were seen."""


class Counted(Struct, frozen=True):
    """One call: its true tokens, and what each way to count makes of it."""

    true: int
    base: int
    cold: int
    learned: int
    expected: int
    chars: int
    langchain: int


class ReferencePrompt(Struct, frozen=True):
    """A conversation that the user begins and ends, and its tokens by model."""

    kind: str
    messages: tuple[str, ...]
    tokens: dict[str, int]


REFERENCE_MODELS = ("claude-sonnet-4-5", "claude-opus-4-8", "gemini-2.5-pro")
WITHIN = 10
"""Per cent; what the median error of a first call may be, by kind and model."""


@cache
def reference_prompts() -> tuple[ReferencePrompt, ...]:
    """The shipped prompts with their counts."""
    data = Path(__file__).with_name("reference_counts.json").read_bytes()
    prompts: list[Any] = msgspec.json.decode(data)["prompts"]
    return msgspec.convert(tuple(prompts), tuple[ReferencePrompt, ...])


def cold_tokens(prompt: ReferencePrompt, model: str) -> int:
    """The tokens that Nexus counts for a prompt's last call, with no usage reported before."""
    with nexus.open(model=model, calibrate=False) as nx:
        for said, answered in zip(prompt.messages[:-1:2], prompt.messages[1::2], strict=True):
            ctx = nx.assemble(said, budget=BUDGET, profile="bare")
            nx.record(ctx, nexus.AgentResult((assistant(answered),), nexus.TokenUsage(0, 0)))
        return nx.assemble(prompt.messages[-1], budget=BUDGET, profile="bare").token_budget.used.total


def _by_reference() -> tuple[Table, Target]:
    rows: list[tuple[Cell, ...]] = []
    for kind in dict.fromkeys(prompt.kind for prompt in reference_prompts()):
        prompts = [prompt for prompt in reference_prompts() if prompt.kind == kind]
        for model in REFERENCE_MODELS:
            errors = [100 * (cold_tokens(prompt, model) / prompt.tokens[model] - 1) for prompt in prompts]
            rows.append(
                (model, kind, round(median(errors), 1), round(min(errors), 1), round(max(errors), 1), len(errors))
            )
    worst = max(abs(float(str(row[2]))) for row in rows)
    columns = ("model", "content", "median %", "lowest %", "highest %", "prompts")
    notes = ("Error of the count before any usage was reported. References: ctok 1.3.0 and Gemma 3's vocabulary.",)
    table = Table("Cold count by model", COMMAND, "benchmarks/reference_counts.json", columns, tuple(rows), notes)
    name = "median error of cold counts, by content and model"
    return table, Target(name, f"within {WITHIN} %", f"at most {worst:.1f} %", worst <= WITHIN)


def run() -> Outcome:
    """The errors by kind and tokenizer, and their means."""
    counter = Remembered()
    found, missing = vocabularies()
    sessions = {
        (vocabulary.name, kind): list(_session(vocabulary, kind, counter))
        for vocabulary in found
        for kind in (*KINDS, MIXED)
    }
    worst = min(min(_errors(calls[10:], "learned")) for calls in sessions.values())
    never = min(min(_errors(calls[10:], "cold")) for calls in sessions.values())
    target = Target(
        "worst under-count after ten reports",
        f"at least {TOLERATED:+.0f} %",
        f"{worst:+.1f} % (never calibrated: {never:+.1f} %)",
        worst >= TOLERATED,
    )
    reference, cold_target = _by_reference()
    return Outcome((reference, _by_kind(sessions, missing), _over_all(sessions, found)), (cold_target, target))


def _by_kind(sessions: dict[tuple[str, str], list[Counted]], missing: list[str]) -> Table:
    rows = [
        (
            name, kind, calls[9].base / calls[9].true,
            *(_error(calls[at], "learned") for at in (0, 3, 10)),
            min(_errors(calls[1:], "expected")),
            _error(calls[10], "chars"), _error(calls[10], "langchain"),
        )
        for (name, kind), calls in sessions.items()
    ]  # fmt: skip
    columns = (
        "tokenizer", "content", "base count", "cold %", "after 3 %", "after 10 %", "worst anchored %", "len/4 %",
        "LangChain %",
    )  # fmt: skip
    notes = (
        "base count: count over true tokens at the tenth call. Others: error of a call's count; negative is an under-count.",
        "cold: first call, with the shipped factor. after 3, after 10: that many reports later. worst anchored: from the",
        "  second call on, with the anchor.",
        "len/4, LangChain (count_tokens_approximately): at the eleventh call.",
        *missing,
    )
    return Table("Error by content", COMMAND, DATA, columns, tuple(rows), notes)


def _over_all(sessions: dict[tuple[str, str], list[Counted]], found: list[Vocabulary]) -> Table:
    """For each way to count: mean absolute error and worst under-count of the last calls, by tokenizer."""
    ways = {
        "len/4 of the text": "chars",
        "LangChain count_tokens_approximately": "langchain",
        "Nexus, base count": "base",
        "Nexus, never calibrated": "cold",
        "Nexus, calibrated": "learned",
        "Nexus, calibrated and anchored": "expected",
    }
    rows: list[tuple[Cell, ...]] = []
    for name, way in ways.items():
        row: list[Cell] = [name]
        for vocabulary in found:
            errors = [_error(sessions[vocabulary.name, kind][10], way) for kind in (*KINDS, MIXED)]
            row.append(f"{fmean(map(abs, errors)):.1f} ({min(errors):+.1f})")
        rows.append(tuple(row))
    notes = (
        "Mean absolute error over all kinds of content, in %, and in brackets the lowest error: at the eleventh call.",
    )
    columns = ("count", *(vocabulary.name for vocabulary in found))
    return Table("Error over all content", COMMAND, DATA, columns, tuple(rows), notes)


def _error(call: Counted, way: str) -> float:
    return 100 * (getattr(call, way) / call.true - 1)


def _errors(calls: list[Counted], way: str) -> list[float]:
    return [_error(call, way) for call in calls]


def _session(vocabulary: Vocabulary, kind: str, counter: Remembered) -> Iterator[Counted]:
    """The calls of one session, made by two engines: one learns, one does not."""
    options: dict[str, Any] = {"model": vocabulary.model, "counter": counter, "clock_ms": lambda: 1_772_800_000_000}
    with nexus.open(**options) as learning, nexus.open(**options, calibrate=False) as deaf:
        for number, piece in enumerate(pieces(kind, CALLS)):
            event = piece if number == 0 else [tool(f"call_{number - 1}", piece, "read")]
            ctx, unlearned = (nx.assemble(event, tools=TOOLS, budget=BUDGET) for nx in (learning, deaf))
            body = ctx.to_openai()
            true = _true_tokens(body, vocabulary)
            call = ToolCall(f"call_{number}", "read", f'{{"piece": {number + 1}}}')
            reply = nexus.AgentResult((assistant(f"That was piece {number}.", call),), nexus.TokenUsage(true, 30))
            learning.record(ctx, reply)
            deaf.record(unlearned, reply)
            yield Counted(
                true,
                ctx.provenance.manifest.base,
                unlearned.token_budget.used.total,
                ctx.token_budget.used.total,
                ctx.expected_tokens,
                sum(len(text) for message in body["messages"] for text in _texts(message)) // 4,
                count_tokens_approximately([as_langchain(message, 0) for message in body["messages"]]),
            )


def _true_tokens(body: Body, vocabulary: Vocabulary) -> int:
    said = sum(3 + sum(map(vocabulary.count, _texts(message))) for message in body["messages"])
    return 3 + said + sum(vocabulary.count(str(definition)) for definition in body["tools"])


def _texts(message: dict[str, Any]) -> Iterator[str]:
    """What a provider shows its model of a message: the role, the texts, names and arguments of calls."""
    yield message["role"]
    content = message.get("content") or ""
    yield from [content] if isinstance(content, str) else (block["text"] for block in content)
    for call in message.get("tool_calls", ()):
        yield from (call["function"]["name"], call["function"]["arguments"])

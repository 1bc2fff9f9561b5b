"""Cost of a recorded session at a provider under different truncation policies, Nexus's among them.

`cache_policies` replays the session's calls and renders each policy's bodies. Here bodies are split into segments (tools,
system, then each content block or message) and sent through the simulated cache of `nexus.providers.prompt_cache`.

A block is counted and named once, by its bytes. Images count by the provider's formula. Tokens are the model's own,
rounded up for each block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

import msgspec
from msgspec import Struct

from nexus.assembly.token_report import to_provider_tokens
from nexus.engine import Engine
from nexus.engine.simulation.cache_policies import NAMES, RecordedSession, Replay, recorded_session, times_of
from nexus.providers.prompt_cache import (
    Cache,
    CacheCall,
    CacheOutcome,
    CacheRule,
    CacheSegment,
    CacheTotals,
    CutPoints,
    break_even,
    cache_rule,
    cheapest_cut_points,
    price_of_break,
    sum_outcomes,
)
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_price import image_price
from nexus.tokens.model import Model
from nexus.types.message import Image, Message, ProviderFormat, ToolResult

LEAST_KEPT_PERCENT = 25
"""Share of the budget that a cut keeps of the history by default, in the search of the cheapest cut points."""

CACHE_BREAKPOINT = "cache_control"

SEGMENT_CHARS = 512
"""Length of a segment where prompts are compared token by token: about the 128 tokens by which OpenAI's cache grows."""

_IMAGE_KEYS = ("source", "image_url", "inline_data", "file_data")
"""Keys of an image in the provider formats."""


class Breaks(Struct, frozen=True):
    """The calls of a policy that missed the cache because their prefix had changed. Tokens and dollars are averages."""

    count: int = 0
    rewritten: int = 0
    """Tokens sent again."""
    dropped: int = 0
    """Tokens no longer sent."""
    dollars: Decimal | None = None
    """Their price; None without prices."""
    paid_back: int | None = None
    """Calls after which the dropped tokens have paid for the break; None: never."""


class PolicyResult(Struct, frozen=True):
    """The result of one policy."""

    policy: str
    totals: CacheTotals
    refused: int
    """Calls that cannot be made within the budget."""
    over_window: int
    """Calls whose prompt exceeds the model's context window."""
    breaks: Breaks

    @property
    def mean_prompt(self) -> int:
        """Tokens of an average prompt, rounded down; 0 without calls."""
        if self.totals.calls:
            return self.totals.prompt // self.totals.calls
        return 0


class Simulation(Struct, frozen=True):
    """The cost of a session with each policy."""

    session: str
    model: Model
    rule: CacheRule
    available: int
    calls: int
    timed: int
    """Calls with a recorded time; the others follow `interval_ms` after the previous one."""
    interval_ms: int
    growth: int
    """Tokens that a call added on average."""
    least_kept: int
    rows: tuple[PolicyResult, ...]
    cut_points: CutPoints | None

    def relative(self, row: PolicyResult) -> float | None:
        """Return the row's cost of input as a multiple of Nexus's; None if that is 0."""
        paid = self.rows[0].totals.input_cost
        if paid:
            return row.totals.input_cost / paid
        return None


@dataclass(slots=True)
class _PolicyRun:
    """The calls of one policy so far."""

    cache: Cache
    outcomes: list[CacheOutcome] = field(default_factory=list[CacheOutcome])
    refused: int = 0
    rewritten: int = 0
    dropped: int = 0
    breaks: int = 0

    def send(self, call: CacheCall | None, added: int) -> None:
        """Send a call (None: it cannot be made) to which the session added so many tokens."""
        if call is None:
            self.refused += 1
            return
        outcome = self.cache.send(call)
        if outcome.miss == "changed":
            # What the session added is new to the cache in any case and no cost of the break.
            previous = self.outcomes[-1].prompt
            self.breaks += 1
            self.rewritten += max(outcome.prompt - outcome.read - added, 0)
            self.dropped += max(previous + added - outcome.prompt, 0)
        self.outcomes.append(outcome)


def simulate_session(
    nx: Engine,
    session: str,
    model: Model,
    *,
    budget: int | None = None,
    hour: bool = False,
    interval_ms: int = 30_000,
    tools: Sequence[dict[str, Any]] = (),
    least_kept: int | None = None,
    profile: str = "layered",
    progress: Callable[[int, int], None] | None = None,
) -> Simulation:
    """Simulate a recorded session's calls with each policy. Nothing is written.

    Args:
        nx: The engine whose ledger contains the session.
        session: The session's label.
        model: The model whose cache rules, prices and provider format are used.
        budget: Available tokens; by default the model's context window less the reserves.
        hour: Use Anthropic's one-hour cache lifetime.
        interval_ms: Time between calls without a recorded time.
        least_kept: History tokens that a cut must keep, in the search of the cheapest cut points; by default a quarter of
            the budget.
        tools: Tool definitions sent with each call.
        profile: Name of the profile.
        progress: Called with the number of calls done and their total.

    Raises:
        NoSuchSession, BadSetting, NotFound, LedgerError: See `Engine.entries` and `Engine.assemble`.
    """
    entries = nx.ledger.entries(session)
    recorded = recorded_session(entries)
    rule = cache_rule(model, hour=hour)
    runs = {name: _PolicyRun(Cache(rule)) for name in NAMES}
    segmenter = Segmenter(model, nx.counter)
    segmenter.add_images(row.message for entry in entries for row in entry.rows)
    with closing(Replay(nx, recorded, model, budget=budget, tools=tools, profile=profile)) as replay:
        growth = _send_calls(replay, segmenter, recorded, runs, interval_ms, progress)
        if least_kept is None:
            least_kept = replay.available * LEAST_KEPT_PERCENT // 100
        cycle = replay.cut_cycle(growth, least_kept)
        return Simulation(
            session=session,
            model=model,
            rule=rule,
            available=replay.available,
            calls=len(recorded.points),
            timed=sum(point.at_ms > 0 for point in recorded.points),
            interval_ms=interval_ms,
            growth=growth,
            least_kept=least_kept,
            rows=tuple(_result(name, run, model, hour=hour) for name, run in runs.items()),
            cut_points=cheapest_cut_points(cycle, rule.rates) if recorded.points else None,
        )


def _send_calls(
    replay: Replay,
    segmenter: Segmenter,
    recorded: RecordedSession,
    runs: dict[str, _PolicyRun],
    interval_ms: int,
    progress: Callable[[int, int], None] | None,
) -> int:
    """Send every call of every policy; return the tokens that a call added on average."""
    first = last = count = 0
    times = times_of(recorded.points, interval_ms)
    for number, (point, at_ms) in enumerate(zip(recorded.points, times, strict=True), 1):
        bodies = replay.bodies(point, at_ms)
        if bodies is not None:
            output = replay.output_tokens(point)
            sent_bodies = {name: body for name, body in bodies.items() if body is not None}
            # Policies that drop nothing share one body.
            calls_by_body = {id(body): segmenter.call(body, at_ms, output) for body in sent_bodies.values()}
            calls = {name: calls_by_body[id(body)] for name, body in sent_bodies.items()}
            total = calls["nothing"].tokens
            added = total - last
            last = total
            first = first or total
            count = count + 1
            for name, run in runs.items():
                run.send(calls.get(name), added)
        if progress:
            progress(number, len(recorded.points))
    if count > 1:
        return (last - first) // (count - 1)
    return last


def _result(name: str, run: _PolicyRun, model: Model, *, hour: bool) -> PolicyResult:
    totals = sum_outcomes(run.outcomes)
    breaks = Breaks()
    if run.breaks:
        rewritten = run.rewritten // run.breaks
        dropped = run.dropped // run.breaks
        dollars = price_of_break(rewritten, model, prompt_tokens=totals.prompt // len(run.outcomes), hour=hour)
        paid_back = break_even(rewritten, dropped, run.cache.rule.rates).calls
        breaks = Breaks(run.breaks, rewritten, dropped, dollars, paid_back)
    over_window = sum(outcome.prompt > model.max_input_tokens for outcome in run.outcomes)
    return PolicyResult(name, totals, run.refused, over_window, breaks)


class Segmenter:
    """Splits the bodies of one model's calls into segments, with a cache of blocks."""

    def __init__(self, model: Model, counter: TokenCounter) -> None:
        self._model = model
        self._counter = counter
        self._price = image_price(model, model.token_factor)
        self._segments: dict[bytes, tuple[CacheSegment, ...]] = {}
        self._names: dict[bytes, str] = {}
        self._image_tokens: dict[str, int] = {}

    def add_images(self, messages: Iterable[Message]) -> None:
        """Store the tokens of the images in messages; a body contains their data but not always their size."""
        for message in messages:
            for part in message.parts:
                for item in part.content if isinstance(part, ToolResult) else (part,):
                    if isinstance(item, Image):
                        self._image_tokens[item.data or item.url] = self._price.tokens(item)

    def call(self, body: dict[str, Any], at_ms: int, output_tokens: int) -> CacheCall:
        """Return the simulated call of a body."""
        segments: list[CacheSegment] = []
        breakpoints: list[int] = []
        for frame, block in _blocks(body, self._model.provider_format):
            content = block
            if isinstance(block, dict) and CACHE_BREAKPOINT in block:
                fields = cast("dict[str, Any]", block)
                content = {key: value for key, value in fields.items() if key != CACHE_BREAKPOINT}
            segments.extend(self._segments_of(frame, content))
            if content is not block:
                breakpoints.append(len(segments))
        return CacheCall(at_ms, tuple(segments), tuple(breakpoints), output_tokens)

    def _segments_of(self, frame: str, block: Any) -> tuple[CacheSegment, ...]:
        """Return the segments of a block, its tokens divided by their lengths."""
        key = frame.encode() + msgspec.json.encode(block)
        if key in self._segments:
            return self._segments[key]
        images: list[str] = []
        text = frame + msgspec.json.encode(_text_only(block, images)).decode() + ","
        base = self._counter.count(text)
        for data in images:
            tokens = self._image_tokens.get(data) or self._image_tokens.get(data.partition(";base64,")[2])
            base += self._price.tokens(Image("image/png")) if tokens is None else tokens
        tokens = to_provider_tokens(base, self._model.token_factor)
        # Only Anthropic's cache compares blocks. The others compare prompts from their beginning, token by token: a
        # system text that changes near its end is read up to the change.
        parts = [text[at : at + SEGMENT_CHARS].encode() for at in range(0, len(text), SEGMENT_CHARS)]
        if self._model.provider_format == "anthropic" or images:
            parts = [key]  # blocks with different images may have the same text, so such a block stays one segment
        total = sum(map(len, parts))
        length = 0
        counted = 0
        segments: list[CacheSegment] = []
        for part in parts:
            length += len(part)
            upto = tokens * length // total
            segments.append(CacheSegment(self._names.setdefault(part, str(len(self._names))), upto - counted))
            counted = upto
        self._segments[key] = tuple(segments)
        return self._segments[key]


def _blocks(body: dict[str, Any], wire: ProviderFormat) -> Iterator[tuple[str, Any]]:
    """Yield the body's blocks in the order in which the provider reads them, each with the text that frames it."""
    if wire == "gemini":
        config: dict[str, Any] = body.get("config", {})
        tools = config.get("tools", ())
        system = config.get("system_instruction")
    else:
        tools = body.get("tools", ())
        system = body.get("system")
    yield from (("", tool) for tool in tools)
    if system is not None:
        if isinstance(system, list):
            blocks = cast("list[Any]", system)
        else:
            blocks = [system]
        yield from (("", block) for block in blocks)
    if wire == "openai":
        yield from (("", message) for message in body["messages"])
        return
    inner = "parts" if wire == "gemini" else "content"
    # The role is counted with a message's first block.
    for message in body["contents" if wire == "gemini" else "messages"]:
        frame = f'{{"role":"{message["role"]}","{inner}":[]}},'
        for block in message[inner]:
            yield frame, block
            frame = ""


def _text_only(value: Any, images: list[str]) -> Any:
    """Return the value without parts that are no text to a model: signatures, hidden thinking, images.

    The images' data or addresses are appended to `images`.
    """
    if isinstance(value, list):
        return [_text_only(item, images) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    block = cast("dict[str, Any]", value)
    if block.get("type") in ("thinking", "redacted_thinking"):
        return {key: "" if key in ("signature", "data") else item for key, item in block.items()}
    text: dict[str, Any] = {}
    for key, item in block.items():
        source = cast("dict[str, Any]", item) if key in _IMAGE_KEYS and isinstance(item, dict) else {}
        address = next((source[name] for name in ("data", "url", "file_uri") if isinstance(source.get(name), str)), "")
        if address:
            images.append(address)
        text[key] = "" if address else _text_only(item, images)
    return text

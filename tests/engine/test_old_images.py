"""Images of older turns become notes: in one recorded decision, where that is worth a broken prefix, and never in pins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nexus
from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.ledger.integrity import check
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.config import Config, ImagesConfig
from nexus.types.ledger_entries import Cut, MessageRef
from nexus.types.message import Image, Message, Text, ToolCall, ToolResult, assistant, tool, user
from nexus.types.request import Event
from support.recount import recount
from support.replay import append
from support.validity import CHECKS

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SHOT = Image("image/png", PIXEL, width=1200, height=900)
NOTE = "was shown here before; to see it again"
MODELS = ("claude-sonnet-4-5", "gpt-4o", "gemini-2.5-pro")
SEEN = nexus.AgentResult((assistant("seen"),))


def opened(keep_turns: int, store: Any = ":memory:", model: str = "gpt-4o") -> Engine:
    config = Config(images=ImagesConfig(keep_turns=keep_turns))
    return nexus.open(ledger=store, model=model, config=config, clock_ms=lambda: 1_760_000_000_000)


def turn(nx: Engine, text: str, *images: Image, budget: int = 40_000) -> AssembledContext:
    ctx = nx.assemble(text, images=images, budget=budget, profile="bare")
    nx.record(ctx, SEEN)
    return ctx


def turns(nx: Engine, count: int, *, budget: int = 40_000) -> list[AssembledContext]:
    """So many turns, each but the first with an image."""
    return [turn(nx, f"turn {n}", *([SHOT] if n else []), budget=budget) for n in range(count)]


def noted(ctx: AssembledContext) -> list[int]:
    """Of each image in the history whether it is a note (1) or shown (0), in order."""
    parts = [part for message in ctx.history for part in message.parts]
    parts += [item for message in ctx.history for result in message.results() for item in result.content]
    return [
        int(isinstance(part, Text))
        for part in parts
        if isinstance(part, Image) or (isinstance(part, Text) and NOTE in part.text)
    ]


def body(ctx: AssembledContext) -> str:
    return json.dumps(ctx.to_provider(ctx.accounting.model_info.provider_format))


def test_keep_turns_0_keeps_every_image() -> None:
    with opened(0) as nx:
        made = turns(nx, 20)
        assert all(ctx.cut is None and not any(noted(ctx)) for ctx in made)
        assert "images" not in made[-1].provenance.manifest.view


def test_old_images_are_replaced_in_one_recorded_cut() -> None:
    with opened(3) as nx:
        made = turns(nx, 20)
        cuts = [ctx for ctx in made if ctx.cut]
        assert 1 <= len(cuts) <= 5
        for ctx in cuts:
            assert ctx.cut is not None and ctx.cut.reason == "old images"
            assert (ctx.cut.omission_notice, ctx.cut.omitted_messages) == ("", 0)
            assert noted(ctx)[-3:] == [0, 0, 0] and 0 not in noted(ctx)[:-3]
            assert ctx.accounting.prefix.causes == ("images of older turns became notes",)
            assert ctx.token_budget.used.total < 40_000
        stored = nx.ledger.store.cuts(1, made[-1].provenance.manifest.view)
        assert [cut.images_until_seq for cut in stored] == [ctx.cut.images_until_seq for ctx in cuts if ctx.cut]
        assert len(nx.history("main")) == 40
        assert sum(isinstance(part, Image) for message in nx.history("main") for part in message.parts) == 19


def test_calls_between_image_decisions_extend_the_prefix() -> None:
    with opened(2) as nx:
        made = turns(nx, 24)
        bodies = [json.dumps(ctx.to_openai()["messages"]) for ctx in made]
        for before, now, ctx in zip(bodies, bodies[1:], made[1:], strict=False):
            assert (ctx.accounting.prefix.state == "extends") == (ctx.cut is None) == now.startswith(before[:-1])


def test_few_images_stay_when_replacing_costs_more() -> None:
    with opened(1) as nx:
        turn(nx, "hello")
        turn(nx, "look", SHOT)
        for n in range(12):
            ctx = turn(nx, f"{n} " + "a long text about other things " * 100)
            assert ctx.cut is None and noted(ctx) in ([], [0])


def test_images_are_replaced_when_prefix_changes_anyway() -> None:
    with opened(1) as nx:
        turn(nx, "hello")
        turn(nx, "look", SHOT)
        for n in range(3):
            turn(nx, f"{n} " + "a long text about other things " * 100)
        other = nx.assemble("and now", model="claude-sonnet-4-5", budget=40_000, profile="bare")
        assert other.accounting.prefix.state == "first" and other.cut is not None and noted(other) == [1]


def test_cut_replaces_images_before_it_omits_messages() -> None:
    with opened(1) as nx:
        turn(nx, "hello", budget=16_000)
        append(nx, "main", Message("user", (Text("look"), *[SHOT] * 6)), assistant("seen"), starts_turn=True)
        append(nx, "main", user("and"), assistant("yes"), starts_turn=True)
        ctx = nx.assemble("words and more words " * 1_850, budget=16_000, profile="bare")
        assert ctx.accounting.full_share > 1 and ctx.cut is not None and ctx.cut.reason == "over budget"
        assert (ctx.cut.omitted_messages, ctx.cut.omission_notice, noted(ctx)) == (0, "", [1] * 6)
        assert ctx.accounting.prefix.state == "broken"


def test_pinned_messages_and_first_message_keep_images() -> None:
    with opened(1) as nx:
        turn(nx, "build what this shows", SHOT)
        for n in range(2):
            turn(nx, f"look {n}", SHOT)
        nx.ledger.pin("main", MessageRef(5, 0))
        for n in range(12):
            turn(nx, f"more {n}", SHOT)
        ctx = nx.assemble("go on", budget=40_000, profile="bare")
        shown = [m.text() for m in ctx.history if any(isinstance(part, Image) for part in m.parts)]
        assert ctx.provenance.manifest.cut and shown[:2] == ["build what this shows", "look 1"]
        nx.ledger.unpin("main", MessageRef(5, 0))
        after = nx.assemble("go on", budget=40_000, profile="bare")
        shown = [m.text() for m in after.history if any(isinstance(part, Image) for part in m.parts)]
        assert "look 1" not in shown and after.accounting.prefix.state == "broken"


def test_images_in_results_are_replaced_and_text_is_kept() -> None:
    with opened(1, model="claude-sonnet-4-5") as nx:
        for n in range(12):
            call = ToolCall(f"c{n}", "look", "{}")
            nx.record(
                nx.assemble(f"look {n}", budget=40_000, profile="bare"), nexus.AgentResult((assistant("", call),))
            )
            result = Message("tool", (ToolResult(call.id, (Text(f"screen {n}"), SHOT), "look"),))
            nx.record(nx.assemble([result], budget=40_000, profile="bare"), SEEN)
        ctx = nx.assemble("and", budget=40_000, profile="bare")
        first = next(result for message in ctx.history for result in message.results())
        assert noted(ctx)[0] == 1
        assert first.content[0] == Text("screen 0")
        assert "--call c0 --images FOLDER" in str(first.content)
        assert CHECKS["anthropic"](ctx.to_anthropic()) == []


@pytest.mark.parametrize("model", MODELS)
def test_bodies_are_valid_and_within_the_token_breakdown(model: str) -> None:
    with opened(2, model=model) as nx:
        for ctx in turns(nx, 14):
            bodies = {
                "openai": ctx.to_openai(), "responses": ctx.to_responses(),
                "anthropic": ctx.to_anthropic(), "gemini": ctx.to_gemini(),
            }  # fmt: skip
            assert [problem for wire, made in bodies.items() for problem in CHECKS[wire](made)] == []
            text = recount(bodies[ctx.accounting.model_info.provider_format]) * ctx.provenance.manifest.factor
            assert text <= ctx.token_budget.used.total


def test_replaced_images_are_counted_exactly() -> None:
    with opened(2) as nx, opened(0) as other:
        ctx = turns(nx, 14)[-1]
        assert any(noted(ctx))
        for n, message in enumerate(ctx.history):
            if n % 2 == 0:
                other.record(other.assemble(Event(message.parts, at_ms=message.at_ms), profile="bare"), SEEN)
        same = other.assemble("turn 13", images=[SHOT], budget=40_000, profile="bare")
        assert [m.parts for m in same.history] == [m.parts for m in ctx.history]
        assert same.token_budget.used == ctx.token_budget.used


def test_calls_with_replaced_images_are_replayed_and_verified() -> None:
    store = SqliteLedger(clock_ms=lambda: 1_760_000_000_000)
    nx = opened(2, store)
    made = turns(nx, 16)
    assert any(ctx.cut for ctx in made)
    for number, ctx in enumerate(made, 1):
        again = nx.replay("main", number)
        assert again.body_hash == ctx.body_hash
        assert (again.cut, noted(again)) == (ctx.cut, noted(ctx))
    # What is set now does not matter to what was sent then.
    assert opened(0, store).replay("main", 16).body_hash == made[15].body_hash
    fresh = opened(2, store).assemble("next", budget=40_000, profile="bare")
    kept = nx.assemble("next", budget=40_000, profile="bare")
    assert body(fresh) == body(kept) and fresh.accounting.token_breakdown == kept.accounting.token_breakdown
    assert list(check(store.dump())) == []


def test_compaction_replaces_kept_images_at_once() -> None:
    with opened(1) as nx:
        for n in range(4):
            turn(nx, f"a long text {n} " * 400)
        for n in range(4):
            turn(nx, f"look {n}", SHOT)
        assert nx.compact("main", budget=40_000, profile="bare")
        ctx = turn(nx, "and now")
        assert any("compacted" in cause for cause in ctx.accounting.prefix.causes)
        assert noted(ctx)[-1] == 0 and sum(noted(ctx)) == len(noted(ctx)) - 1


def test_explain_lists_omitted_images_with_reason() -> None:
    with opened(2) as nx:
        made = turns(nx, 16)
        number = next(n for n, ctx in enumerate(made, 1) if ctx.cut)
        told = nx.explain("main", number)
        images = [line for line in told.lines if line.kind == "image"]
        assert len(images) == sum(noted(made[number - 1])) > 0
        for line in images:
            assert (line.state, line.name, line.tokens) == ("omitted", "image/png 1200x900", 0)
            assert (
                line.full_tokens >= 1_120
                and "belongs to an older turn" in line.reason
                and "--images FOLDER" in line.reason
            )
        assert sum(line.tokens for line in told.lines) == told.used
        assert not [line for line in told.lines if line.kind == "message" and line.state == "truncated"]
        later = nx.explain("main")
        assert [line for line in later.lines if line.kind == "image"]


def test_stored_cut_of_earlier_version_is_read() -> None:
    old = '{"view":"v","number":1,"at_seq":4,"first":{"seq":3,"ord":0},"marker":"m","left_out_messages":2,"left_out_tokens":9,"plain_until":4}'
    assert msgspec.json.decode(old, type=Cut).images_until_seq == 0


def test_image_setting_is_configured_and_open_tool_loop_keeps_images(tmp_path: Path) -> None:
    with nexus.open(tmp_path, config=Config(images=ImagesConfig(keep_turns=1)), model="gpt-4o") as nx:
        ctx = nx.assemble("look at all of these", images=[SHOT] * 6, budget=60_000, profile="bare")
        for n in range(6):
            nx.record(ctx, nexus.AgentResult((assistant("", ToolCall(f"c{n}", "look", "{}")),)))
            ctx = nx.assemble([tool(f"c{n}", "ok", "look")], budget=60_000, profile="bare")
            assert noted(ctx) == [0] * 6

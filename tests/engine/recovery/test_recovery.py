"""A call gets through or is refused with a typed error, in three calls at most, each smaller than the one before."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import nexus
from engine.recovery.provider import Provider, answer, in_words, without_numbers
from nexus.agents import Agent
from nexus.assembly.record import with_sizes
from nexus.broker import ensure_budget, handle_overflow, retry_overflow, trigger_compaction
from nexus.engine import Engine, available_tokens
from nexus.engine.async_engine import AsyncEngine
from nexus.engine.overflow_recovery import Answer, await_compaction, call, despite_learned_limit, recover
from nexus.errors import BudgetTooSmall, ContextOverflow, LateReply, ModelCallFailed
from nexus.summarization import SummaryReply, SummaryRequest
from nexus.summarization.summarizer import SummaryCanceled
from nexus.types.message import Text, ToolCall, assistant, tool, user
from nexus.types.request import Event
from support.scripted_agent import ScriptedClient, said

LINE = "2026-01-01 12:00:00 worker finished its part of the work\n"
ASK: dict[str, Any] = {"budget": 16_000, "profile": "bare"}


def session(turns: int = 40, *, lines: int = 12, **options: Any) -> Engine:
    nx = nexus.open(ledger=":memory:", model="gpt-4o", clock_ms=lambda: 1_760_000_000_000, **options)
    for turn in range(turns):
        call_ = ToolCall(f"c{turn}", "run", "{}")
        said = [user(f"Look at part {turn}. Never touch legacy.py."), assistant("", call_)]
        said += [tool(f"c{turn}", f"part {turn}\n" + LINE * lines, "run"), assistant(f"Part {turn} is sound.")]
        nx.ledger.append("main", with_sizes(said, nx.counter), starts_turn=True)
        nx.ledger.close_turn("main")
    return nx


def shrinks(seen: list[int]) -> bool:
    return all(later < earlier for earlier, later in pairwise(seen))


def test_call_that_fits_is_sent_once_and_recorded() -> None:
    with session(4) as nx:
        got = call(nx, "and now?", Provider(100_000).send, **ASK)
        assert (len(got.attempts), got.was_recovered, got.compaction) == (1, False, ())
        assert nx.history("main")[-1].text() == "fine"


def test_context_over_85_percent_is_compacted_before_the_call() -> None:
    with session() as nx:
        provider = Provider(100_000)
        got = call(nx, "and now?", provider.send, budget=13_000, profile="bare")
        assert len(provider.seen) == 1 and len(got.compaction) == 1
        assert provider.seen[0] <= 0.6 * 13_000
        assert "Never touch legacy.py." in json.dumps(got.ctx.to_openai())
        without = call(nx, "and now?", provider.send, compact=False, budget=13_000, profile="bare")
        assert without.compaction == ()


@pytest.mark.parametrize("refuse", [in_words, without_numbers])
def test_overflow_is_compacted_to_40_percent_and_retried(refuse: Any) -> None:
    with session() as nx:
        provider = Provider(8_000, refuse)
        got = call(nx, "and now?", provider.send, **ASK)
        assert got.was_recovered and len(got.attempts) <= 3 and shrinks(provider.seen)
        assert got.attempts[1].after == "compacted to 40 %"
        assert provider.seen[-1] <= 8_000 and got.result.messages[0].text() == "fine"
        assert nx.limits.recoveries["gpt-4o"] == len(got.attempts) - 1
        assert {entry.body["trigger"] for entry in nx.ledger.entries("main") if entry.kind == "compaction"} == {
            "overflow_recovery"
        }


def test_result_in_the_entry_of_its_answer_is_shortened_and_not_left_out() -> None:
    """A loop over `nx.record` stores the results that it sent together with the reply to them."""
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        for turn in range(3):
            ctx = nx.assemble(f"Look at part {turn}.", session="main", profile="bare")
            nx.record(ctx, nexus.AgentResult((assistant("", ToolCall(f"c{turn}", "run", "{}")),)))
            ctx = nx.assemble([tool(f"c{turn}", LINE * 600, "run")], session="main", profile="bare")
            nx.record(ctx, nexus.AgentResult((assistant(f"Part {turn} is sound."),)))
        whole = nx.assemble("and now?", session="main", profile="bare").token_budget.used.total
        provider = Provider(int(0.95 * whole), in_words)
        got = call(nx, "and now?", provider.send, profile="bare", compact=False)
        assert got.attempts[1].after.startswith("cut to 40 %")
        assert provider.seen[-1] >= 0.25 * provider.window


def test_reported_window_limits_later_calls() -> None:
    with session() as nx:
        provider = Provider(8_000, in_words)
        call(nx, "and now?", provider.send, **ASK)
        seen = len(provider.seen)
        for turn in range(30):
            got = call(nx, f"go on with {turn} " + LINE * 8, provider.send, **ASK)
            assert not got.was_recovered
        assert len(provider.seen) == seen + 30


def test_learned_limit_keeps_response_reserve_and_can_be_forgotten() -> None:
    with session(4) as nx:
        asked: dict[str, Any] = {"profile": "bare", "model_config": {"max_tokens": 64_000}}
        before = nx.assemble("x", **asked).token_budget.available
        nx.limits.learn("gpt-4o-2024-08-06", 120_000)
        assert nx.assemble("x", **asked).token_budget.available == before < 120_000
        nx.limits.learn("gpt-4o", 9_000)
        bounded = nx.assemble("x", **asked)
        assert bounded.token_budget.available == available_tokens(nx) == 9_000 == bounded.provenance.manifest.available
        assert nx.assemble("x", budget=5_000, profile="bare").token_budget.available == 5_000
        assert nx.limits.forget("gpt-4o") and not nx.limits.forget("gpt-4o")
        assert nx.assemble("x", **asked).token_budget.available == before


def test_learned_limit_below_fixed_parts_is_dropped() -> None:
    with session(4) as nx:
        nx.limits.learn("gpt-4o", 50)
        assert call(nx, "and now?", Provider(100_000).send, profile="bare").result.messages[0].text() == "fine"


def test_limit_that_another_turn_forgets_and_learns_meanwhile_stops_no_turn() -> None:
    with session(4) as nx:
        limits: list[int] = []

        def assemble() -> nexus.AssembledContext:
            try:
                return nx.assemble("and now?", profile="bare")
            finally:
                limits.append(nx.limits.forget("gpt-4o"))  # by the other turn
                nx.limits.learn("gpt-4o", 50)

        nx.limits.learn("gpt-4o", 50)
        assert despite_learned_limit(nx, None, assemble).token_budget.available > 50
        assert limits == [True, True]
        assert not nx.limits.forget("gpt-4o")


def test_count_mismatch_is_learned() -> None:
    with session() as nx:
        provider = Provider(12_000, in_words, ratio=1.9)
        got = call(nx, "and now?", provider.send, **ASK)
        assert got.was_recovered and provider.seen[-1] <= 12_000
        for turn in range(12):
            assert not call(nx, f"go on {turn}", provider.send, **ASK).was_recovered


@pytest.mark.parametrize("how", ["overflow", "ollama"])
def test_silent_overflow_is_detected(how: str) -> None:
    with session() as nx:
        provider = Provider(6_000, silently=how)
        got = call(nx, "and now?", provider.send, **ASK, model="gpt-4o")
        assert got.was_recovered and provider.seen[-1] <= 6_000 and got.result.messages[0].text() == "fine"
        assert "I see only the end of it" not in json.dumps([m.text() for m in nx.history("main")])


def test_overflow_error_after_three_calls_leaves_the_message_and_a_failed_turn() -> None:
    with session() as nx:
        before = len(nx.history("main"))
        provider = Provider(10, without_numbers)
        with pytest.raises(ContextOverflow, match="input is too long") as caught:
            call(nx, "and now?", provider.send, **ASK)
        assert len(provider.seen) <= 3 and shrinks(provider.seen)
        assert len(caught.value.attempts) == len(provider.seen)
        assert len(nx.history("main")) == before + 1
        assert nx.ledger.turns("main")[-1].status == "failed"
        used = nx.assemble("and now?", **{**ASK, "budget": 1_000}).token_budget.used
        assert re.search(rf"Tokens of the last call: .*system prompt {used.system_prompt:,}\b", str(caught.value))
        assert re.search(r"history \d+.*current message \d+", str(caught.value))


def test_other_errors_and_rate_limits_are_raised_unchanged() -> None:
    def limited(_: Any) -> Any:
        raise RuntimeError("Error code: 429 - Rate limit reached for gpt-4o: Limit 30000, Requested 40000")

    with session(3) as nx:
        with pytest.raises(RuntimeError, match="Rate limit"):
            call(nx, "x", limited, **ASK)
        with pytest.raises(KeyError):
            call(nx, "x", lambda _: {}["missing"], **ASK)
        assert not nx.limits.recoveries


def test_output_limit_is_lowered_when_reply_does_not_fit() -> None:
    asked: list[int] = []

    def send(ctx: nexus.AssembledContext) -> Any:
        most = ctx.to_openai()["max_tokens"]
        asked.append(most)
        if most > 6_000:
            raise RuntimeError(
                "Error code: 400 - This model's maximum context length is 16384 tokens. However, you requested 24384 tokens "
                "(10384 in the messages, 14000 in the completion). Please reduce the length of the messages or completion."
            )
        return answer(10_384, "fine")

    with session() as nx:
        got = call(
            nx, "and now?", send, budget=12_000, profile="bare", compact=False, model_config={"max_tokens": 14_000}
        )
        assert asked == [14_000, 6_000] and got.attempts[1].after == "a shorter answer was asked for"


def test_failing_summarizer_does_not_prevent_recovery() -> None:
    class Broken:
        name, call_tokens = "broken", 0

        def summarize(self, request: SummaryRequest) -> SummaryReply:
            raise ConnectionError(f"no server for {len(request.rows)} messages")

    with session(summarizer=Broken()) as nx:
        got = call(nx, "and now?", Provider(8_000, in_words).send, **ASK)
        assert got.was_recovered and got.compaction[0].method == "extractive" and got.compaction[0].attempts


def test_fixed_parts_are_named_when_they_alone_are_too_large() -> None:
    with session() as nx, pytest.raises(BudgetTooSmall) as caught:
        call(nx, "w " * 20_000, Provider(8_000, in_words).send, **ASK)
    assert caught.value.parts["current event"] > 16_000


def test_broker_functions_follow_document_002() -> None:
    with session() as nx:
        whole = nx.assemble("and now?", budget=100_000, profile="bare").token_budget.used.total
        most = int(whole / 0.9)
        ctx = nx.assemble("and now?", budget=most, profile="bare")
        assert ensure_budget(nx, ctx.token_budget, "main", high_mark=1.0, profile="bare") == {"compacted": False}
        assert ensure_budget(nx, ctx.token_budget, "main", profile="bare") == {"compacted": True}
        after = nx.assemble("and now?", budget=most, profile="bare")
        assert after.token_budget.used.total <= 0.6 * most
        assert ensure_budget(nx, after.token_budget, "main", profile="bare") == {"compacted": False}
    with session() as nx:
        ctx = nx.assemble("and now?", budget=most, profile="bare")
        assert handle_overflow(nx, "main", ctx.token_budget, profile="bare")
        assert nx.assemble("and now?", budget=most, profile="bare").token_budget.used.total <= 0.4 * most
        mark = nx.ledger.live("main").checkpoint
        assert mark is not None and mark.body["trigger"] == "overflow_recovery"
    with session() as nx:
        done = trigger_compaction(nx, "main", 5_000, budget=most, profile="bare")
        assert done and done.tokens_after <= 5_000


@pytest.mark.parametrize("share", [0.2, 0.45, 0.8])
def test_handle_overflow_aims_at_40_percent_of_what_was_sent(share: float) -> None:
    """The provider's limit is below our count, however far that is below the window."""
    with session() as nx:
        sent = nx.assemble("and now?", budget=100_000, profile="bare").token_budget.used.total
        ctx = nx.assemble("and now?", budget=int(sent / share), profile="bare")
        assert handle_overflow(nx, "main", ctx.token_budget, profile="bare")
        after = nx.assemble("and now?", budget=int(sent / share), profile="bare")
        assert after.token_budget.used.total <= 0.4 * sent


def test_recover_continues_after_a_failed_call() -> None:
    with session() as nx:
        provider = Provider(8_000, in_words)
        ctx = nx.assemble("and now?", **ASK)
        try:
            provider.send(ctx)
        except RuntimeError as error:
            got: Answer = retry_overflow(nx, ctx, error, provider.send, **ASK)
        assert len(got.attempts) == 2 and nx.history("main")[-2].text() == "and now?"
        with pytest.raises(KeyError):
            retry_overflow(nx, ctx, KeyError("x"), provider.send, **ASK)


def test_recovered_call_keeps_tools_settings_and_event_id() -> None:
    tools = [{"name": "run", "description": "Runs a command.", "parameters": {"type": "object", "properties": {}}}]
    with session() as nx:
        provider = Provider(8_000, in_words)
        event = Event(content=(Text("and now?"),), id="event-7", source="channel")
        ctx = nx.assemble(event, **ASK, tools=tools, model_config={"temperature": 0.5}, toolset="shell")
        with pytest.raises(RuntimeError) as caught:
            provider.send(ctx)
        got = recover(nx, ctx, caught.value, provider.send)
        for name in ("tools", "temperature"):
            assert got.ctx.to_openai()[name] == ctx.to_openai()[name]
        assert (got.ctx.toolset_name, got.ctx.source_event_id) == ("shell", "event-7")
        assert got.ctx.event[-1].source == "channel" and got.ctx.token_budget.direct


def test_everything_else_is_cut_when_fixed_parts_exceed_40_percent() -> None:
    with session() as nx:
        long = "w " * 3_000
        provider = Provider(4_500, without_numbers)
        got = call(nx, long, provider.send, compact=False, **ASK)
        assert got.attempts[1].tokens > 0.4 * got.attempts[0].tokens or len(got.attempts) == 3
        assert got.attempts[-1].after == "cut to what is never cut" and provider.seen[-1] <= 4_500


def test_limit_below_fixed_parts_is_not_learned() -> None:
    with session() as nx:
        with pytest.raises(ContextOverflow):
            call(nx, "and now?", Provider(10, in_words).send, **ASK)
        assert available_tokens(nx, budget=16_000) == 16_000
        assert not call(nx, "and now?", Provider(100_000).send, **ASK).was_recovered


def test_failed_size_bounds_a_larger_reported_limit() -> None:
    def refuse(window: int, _tokens: int) -> Exception:
        return RuntimeError(f"This model's maximum context length is {window} tokens. Please reduce the length.")

    with session(25) as nx:
        got = call(nx, "and now?", Provider(20_000, refuse, ratio=3.5).send, compact=False, **ASK)
        assert available_tokens(nx, **ASK) < got.attempts[0].tokens < 20_000 - got.ctx.token_budget.reserve_response


def test_byte_limit_is_not_learned_as_token_limit() -> None:
    def refuse(_window: int, _tokens: int) -> Exception:
        return RuntimeError("413 Request Entity Too Large")

    with session() as nx:
        assert call(nx, "and now?", Provider(8_000, refuse).send, **ASK).was_recovered
        assert available_tokens(nx, budget=16_000) == 16_000


def test_provider_error_is_the_cause_and_overflows_are_counted() -> None:
    with session() as nx:
        with pytest.raises(ContextOverflow) as caught:
            call(nx, "and now?", Provider(10, without_numbers).send, **ASK)
        assert str(caught.value.__cause__) == "input is too long for requested model"
        assert nx.limits.recoveries["gpt-4o"] == len(caught.value.attempts)


@pytest.mark.parametrize(
    ("model", "wire", "config", "setting"),
    [
        ("gpt-4o", "openai", {"max_tokens": None}, "max_tokens"),
        ("gpt-5", "openai", {}, "max_completion_tokens"),
        ("gemini-2.5-pro", "gemini", {}, "max_output_tokens"),
    ],
)
def test_output_limit_uses_the_providers_setting_name(
    model: str, wire: str, config: dict[str, Any], setting: str
) -> None:
    asked: list[Any] = []

    def send(ctx: nexus.AssembledContext) -> Any:
        body = ctx.to_gemini()["config"] if wire == "gemini" and ctx.model_config else getattr(ctx, f"to_{wire}")()
        asked.append(body.get(setting))
        if len(asked) == 1:
            raise RuntimeError(
                "This model's maximum context length is 16384 tokens. However, you requested 24384 tokens "
                "(10384 in the messages, 14000 in the completion)."
            )
        return answer(10_384, "fine")

    with session() as nx:
        got = call(nx, "and now?", send, model=model, compact=False, model_config=config, **ASK)
        assert asked == [None, 6_000] and got.attempts[1].after == "a shorter answer was asked for"


def test_non_numeric_output_limit_is_kept_and_prompt_shrinks() -> None:
    def refuse(_window: int, _tokens: int) -> Exception:
        return RuntimeError("input length and `max_tokens` exceed context limit")

    with session() as nx:
        got = call(nx, "and now?", Provider(8_000, refuse).send, model_config={"max_tokens": None}, **ASK)
        assert got.was_recovered and got.ctx.model_config == {"max_tokens": None}


def test_prompt_does_not_grow_when_output_limit_is_lowered() -> None:
    with session(4) as nx:
        sizes: list[int] = []

        def send(ctx: nexus.AssembledContext) -> Any:
            sizes.append(ctx.token_budget.used.total)
            if len(sizes) == 1:
                nx.ledger.append("main", with_sizes([user("w " * 900)], nx.counter), starts_turn=True)
                raise RuntimeError(
                    "maximum context length is 4000 tokens. However, you requested 16000 tokens "
                    "(2000 in the messages, 14000 in the completion)."
                )
            return answer(ctx.token_budget.used.total, "fine")

        with pytest.raises(LateReply) as late:
            call(nx, "and now?", send, model_config={"max_tokens": 14_000}, **ASK)
        assert sizes[1] < sizes[0]
        assert [message.text() for message in nx.history(late.value.stored_as)][-2:] == ["and now?", "fine"]


def test_retry_budget_ends_with_its_call_and_the_turn_keeps_its_own() -> None:
    """Results that arrive later need more than the smallest prompt that the retry was cut to."""
    refused = ModelCallFailed("prompt is too long: 9000 tokens > 8000 maximum", "context_overflow")
    steps = [[refused], [refused], said("", ToolCall("c", "recall", '{"query": "part"}')), said("Done.")]

    async def main(nx: Engine) -> None:
        client = ScriptedClient(*steps)
        result = await Agent(AsyncEngine(nx), client, profile="bare").run("and now?", session="main")
        assert result.error is None
        _, compacted, cut, later = (ctx.token_budget for ctx in client.contexts)
        assert cut.used.total < compacted.used.total <= compacted.available
        assert (later.direct, later.available) == (False, available_tokens(nx))
        assert later.available > cut.used.total

    with session() as nx:
        asyncio.run(main(nx))


def test_compaction_that_ends_behind_a_cancellation_is_no_unhandled_error() -> None:
    """Event loops report such errors, and a chat printed a traceback."""

    async def cancel() -> list[dict[str, Any]]:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))

        def compact(stop: threading.Event) -> Any:
            stop.wait()
            raise SummaryCanceled("the compaction was canceled")

        task = asyncio.ensure_future(await_compaction(compact))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()
        await asyncio.sleep(0)
        return reported

    assert asyncio.run(cancel()) == []


def test_all_work_is_shielded_this_way() -> None:
    source = Path(nexus.__file__).parent
    used = [path.name for path in source.rglob("*.py") if "asyncio.shield(" in path.read_text("utf-8")]
    assert used == ["lease.py"]

"""Cold counts of prompts next to the reference counts that are shipped with the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest
from benchmarks.counter_error import BUDGET, REFERENCE_MODELS, ReferencePrompt, cold_tokens, reference_prompts

import nexus
from nexus.engine.analysis.replay import ReplayOverrides
from nexus.types.ledger_entries import StoredCalibration
from nexus.types.message import Image, assistant

KINDS = ("chat", "code", "JSON", "CJK", "logs", "base64")
ENGLISH = "Where do we meet tomorrow, and when? "
CHINESE = "我们昨天晚上发现缓存没有命中"


def usage(text: str, reported: int) -> nexus.AgentResult:
    return nexus.AgentResult((assistant(text),), nexus.TokenUsage(reported, 5))


@pytest.mark.parametrize("model", REFERENCE_MODELS)
@pytest.mark.parametrize("kind", KINDS)
def test_cold_count_is_within_ten_percent_of_reference(kind: str, model: str) -> None:
    prompts = [prompt for prompt in reference_prompts() if prompt.kind == kind]
    errors = [cold_tokens(prompt, model) / prompt.tokens[model] - 1 for prompt in prompts]
    large = [error for error, prompt in zip(errors, prompts, strict=True) if prompt.tokens[model] > 300]
    assert len(errors) >= 12
    assert abs(median(errors)) <= 0.10
    assert min(large, default=0.0) >= -0.08
    assert min(errors) >= -0.13


@pytest.mark.parametrize(("model", "tokens"), [("claude-sonnet-4-5", 8), ("claude-opus-4-8", 7), ("gemini-2.5-pro", 2)])
def test_prompt_of_one_word_is_counted_without_json_framing(model: str, tokens: int) -> None:
    count = cold_tokens(ReferencePrompt("chat", ("hi",), {}), model)
    assert tokens <= count <= tokens + 8


@pytest.mark.parametrize("model", REFERENCE_MODELS)
def test_counts_stay_near_reference_after_reported_usage(model: str) -> None:
    """Chats whose calls report the reference counts, then text of another kind in the same session."""
    reported, count = 0, 0
    references = {prompt.messages: prompt.tokens[model] for prompt in reference_prompts()}
    with nexus.open(model=model) as nx:
        for number in range(8):
            *chat, last = max((p.messages for p in reference_prompts()[3 * number : 3 * number + 3]), key=len)
            said: tuple[str, ...] = ()
            for user, answer in zip((*chat[::2], last), (*chat[1::2], "Yes."), strict=True):
                said += (user,)
                ctx = nx.assemble(user, session="s", budget=BUDGET, profile="bare")
                count, true = ctx.token_budget.used.total, reported + references.get(said, 0)
                if said in references and true > 60:
                    assert abs(count / true - 1) <= 0.10
                nx.record(ctx, usage(answer, true if said in references else 0))
                said += (answer,)
            reported += references[said[:-1]] + 5  # the last answer, and its framing
        [foreign] = [p for p in reference_prompts() if p.kind == "CJK" and p.tokens[model] > 1_200][:1]
        for user, answer in zip(foreign.messages[::2], (*foreign.messages[1::2], ""), strict=True):
            ctx = nx.assemble(user, session="s", budget=BUDGET, profile="bare")
            count = ctx.token_budget.used.total
            nx.record(ctx, usage(answer or "好。", 0))
    assert abs(count / (reported + foreign.tokens[model]) - 1) <= 0.15


def test_reported_usage_corrects_the_estimate_by_content() -> None:
    with nexus.open(model="claude-sonnet-4-5") as nx:
        ctx = nx.assemble(ENGLISH * 100)
        counted = ctx.provenance.manifest.base * ctx.provenance.manifest.content_factor
        nx.record(ctx, usage("At the station.", int(counted * 1.2)))
        [(provider, key, learned)] = nx.ledger.store.calibrations()
        manifests = [nx.assemble(text, session="other").provenance.manifest for text in (ENGLISH * 50, CHINESE * 50)]
    assert (provider, key) == ("anthropic", "claude-sonnet-4-5 by content")
    assert learned.factor_64 > 64
    assert manifests[1].content_factor > manifests[0].content_factor
    assert [m.factor for m in manifests] == [learned.factor_64 / 64 * m.content_factor for m in manifests]


def test_calibration_of_base_counts_applies_to_factor_set_by_user(tmp_path: Path) -> None:
    file, model = tmp_path / "ledger.db", "claude-sonnet-4-5"
    with nexus.open(ledger=file) as nx:
        nx.ledger.store.calibrate("anthropic", model, StoredCalibration(100, 9, 7))
        assert nx.assemble(ENGLISH * 50, model=model).provenance.manifest.factor < 1.2
    with nexus.open(ledger=file, models={model: {"token_factor": 1.1}}) as nx:
        assert nx.assemble(ENGLISH * 50, model=model).provenance.manifest.factor == 100 / 64
        assert nx.ledger.store.calibrations() == [("anthropic", model, StoredCalibration(100, 9, 7))]


def test_factor_of_reopened_session_is_the_same(tmp_path: Path) -> None:
    factors: list[float] = []
    for _ in range(2):
        with nexus.open(ledger=tmp_path / "ledger.db", clock_ms=lambda: 7) as nx:
            for number in range(0 if factors else 40):
                ctx = nx.assemble((CHINESE, ENGLISH)[number % 2] * (number + 1), session="s")
                nx.record(ctx, usage(ENGLISH * number or "Yes.", 0))
            factors.append(nx.assemble("And now?", session="s").provenance.manifest.factor)
    assert factors[0] == factors[1]


def test_old_messages_count_by_their_own_content() -> None:
    with nexus.open(model="claude-sonnet-4-5") as nx:
        nx.record(nx.assemble(CHINESE * 2_000, session="s"), usage("好。", 0))
        for number in range(40):
            nx.record(nx.assemble(f"And {number}?", session="s"), usage("Yes.", 0))
        assert nx.assemble("And now?", session="s").provenance.manifest.factor > 1.3


def test_other_model_in_replay_is_counted_by_content() -> None:
    with nexus.open(model="gpt-4o") as nx:
        nx.record(nx.assemble(CHINESE * 100, session="s"), usage("好。", 0))
        changed = nx.what_if("s", 1, ReplayOverrides(model="claude-sonnet-4-5"))
        live = nx.assemble(CHINESE * 100, session="other", model="claude-sonnet-4-5")
    assert changed.provenance.manifest.content_factor == live.provenance.manifest.content_factor > 1.3


def test_blocks_before_the_conversation_count_by_their_content() -> None:
    with nexus.open(model="claude-sonnet-4-5") as nx:
        for number in range(15):
            nx.record(nx.assemble(f"question {number} " * 30, profile="tagged"), usage(f"answer {number} " * 30, 0))
        assert nx.assemble("now", profile="tagged").provenance.manifest.factor >= 1.0


def test_factor_set_by_user_applies_to_every_content() -> None:
    with nexus.open(models={"claude-sonnet-4-5": {"token_factor": 1.1}}, model="claude-sonnet-4-5") as nx:
        assert nx.assemble("Hi, are you there?").provenance.manifest.factor == 1.1


def test_images_keep_the_model_factor() -> None:
    picture = Image("image/png", url="https://example.org/a.png", width=800, height=600)
    with nexus.open(model="gemini-2.5-pro", calibrate=False) as nx:
        ctx = nx.assemble("What is this?", images=[picture])
        assert ctx.provenance.manifest.factor >= ctx.accounting.model_info.token_factor
        nx.record(ctx, usage("A cat.", 0))
        for number in range(40):
            nx.record(nx.assemble(f"And {number}?"), usage("Yes.", 0))
        assert nx.assemble("And now?").provenance.manifest.factor >= 1.0


def test_recorded_call_replays_with_its_own_factor() -> None:
    with nexus.open(model="claude-sonnet-4-5") as nx:
        ctx = nx.assemble(ENGLISH * 100, session="s")
        body, manifest = json.dumps(ctx.to_anthropic()), ctx.provenance.manifest
        nx.record(ctx, usage("Hello.", int(manifest.base * 1.3)))
        other = nx.assemble(CHINESE * 50, session="s")
        nx.record(other, usage("好。", 0))
        again, latest = nx.replay("s", 1), nx.replay("s", 2)
    assert other.provenance.manifest.factor > manifest.factor
    assert (json.dumps(again.to_anthropic()), again.provenance.manifest) == (body, manifest)
    assert latest.provenance.manifest == other.provenance.manifest


def test_what_a_cut_leaves_is_counted_by_its_own_content() -> None:
    """Old English leaves, and dense text stays: the call of the cut counts as the call after it."""
    with nexus.open(model="claude-sonnet-4-5") as nx:
        for number in range(30):
            text = ENGLISH * 60 if number < 20 else CHINESE * 20
            nx.record(nx.assemble(text, session="s", budget=100_000), usage("Yes.", 0))
        ctx = nx.assemble("And now?", session="s", budget=12_000)
        nx.record(ctx, usage("Yes.", 0))
        later = nx.assemble("And then?", session="s", budget=12_000)
    used = ctx.token_budget.used.total
    assert ctx.cut is not None
    assert later.cut is None
    assert abs(later.token_budget.used.total / used - 1) <= 0.03


def test_cut_fits_where_what_it_leaves_takes_more_tokens_than_the_whole_history_did() -> None:
    with nexus.open(model="claude-sonnet-4-5") as nx:
        nx.record(nx.assemble(ENGLISH * 4_000, session="s", budget=100_000), usage("Yes.", 0))
        for budget in range(700, 2_000, 40):
            ctx = nx.assemble(CHINESE * 20, session="s", budget=budget)
            assert ctx.cut is not None
            assert ctx.token_budget.used.total <= budget

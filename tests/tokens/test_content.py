"""Cold counts of prompts next to the reference counts that are shipped with the benchmarks."""

from __future__ import annotations

import json
from statistics import median

import pytest
from benchmarks.counter_error import REFERENCE_MODELS, cold_tokens, reference_prompts

import nexus
from nexus.types.message import Image, assistant

KINDS = ("chat", "code", "JSON", "CJK", "logs", "base64")


@pytest.mark.parametrize("model", REFERENCE_MODELS)
@pytest.mark.parametrize("kind", KINDS)
def test_cold_count_is_within_ten_percent_of_reference(kind: str, model: str) -> None:
    prompts = [prompt for prompt in reference_prompts() if prompt.kind == kind]
    errors = [cold_tokens(prompt, model) / prompt.tokens[model] - 1 for prompt in prompts]
    assert len(errors) >= 12
    assert abs(median(errors)) <= 0.10
    assert min(errors) >= -0.18


def test_factor_set_by_user_applies_to_every_content() -> None:
    with nexus.open(models={"claude-sonnet-4-5": {"token_factor": 1.1}}, model="claude-sonnet-4-5") as nx:
        assert nx.assemble("Hi, are you there?").provenance.manifest.factor == 1.1


def test_content_does_not_change_factor_after_reported_usage() -> None:
    with nexus.open(model="claude-sonnet-4-5") as nx:
        ctx = nx.assemble("Where do we meet tomorrow, and when? " * 100)
        nx.record(ctx, nexus.AgentResult((assistant("At the station."),), nexus.TokenUsage(1_100, 5)))
        factors = [
            nx.assemble(text).provenance.manifest.factor for text in ("Thanks!", "我们昨天晚上发现缓存没有命中" * 50)
        ]
    assert factors[0] == factors[1]


def test_images_keep_the_model_factor() -> None:
    picture = Image("image/png", url="https://example.org/a.png", width=800, height=600)
    with nexus.open(model="gemini-2.5-pro", calibrate=False) as nx:
        ctx = nx.assemble("What is this?", images=[picture])
        assert ctx.provenance.manifest.factor >= ctx.accounting.model_info.token_factor
        nx.record(ctx, nexus.AgentResult((assistant("A cat."),), nexus.TokenUsage(0, 5)))
        assert nx.assemble("And now?").provenance.manifest.factor >= 1.0


def test_recorded_call_replays_with_its_own_factor() -> None:
    with nexus.open(model="claude-sonnet-4-5") as nx:
        ctx = nx.assemble("Hi!", session="s")
        body, factor = json.dumps(ctx.to_anthropic()), ctx.provenance.manifest.factor
        nx.record(ctx, nexus.AgentResult((assistant("Hello."),), nexus.TokenUsage(0, 5)))
        other = nx.assemble("我们昨天晚上发现缓存没有命中" * 50, session="s")
        nx.record(other, nexus.AgentResult((assistant("好。"),), nexus.TokenUsage(0, 5)))
        again = nx.replay("s", 1)
    assert other.provenance.manifest.factor > factor
    assert (json.dumps(again.to_anthropic()), again.provenance.manifest.factor) == (body, factor)

"""Many images in one request: limits of edge and number, in batches, declared where they change what was sent before."""

from __future__ import annotations

import base64
import json
import random
from functools import cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

import nexus
from interchange.sent_images import SentImage, image_problems, sent_images
from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.interop.chat_files import read_openai
from nexus.interop.importing import import_transcript
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.config import Config, ImagesConfig
from nexus.types.message import Image, Message, Text, ToolCall, ToolResult, assistant
from support.validity import CHECKS

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai": "gpt-4o",
    "responses": "gpt-4o",
    "gemini": "gemini-2.5-pro",
}
SEEN = nexus.AgentResult((assistant("seen"),))
SHRUNK = "images over 2,000 pixels were shrunk: there are more than 20"
NOTED = "the oldest images became notes: the request has more images than the provider takes"


@cache
def shot(number: int = 0, width: int = 16, height: int = 8) -> Image:
    """One of many different small images."""
    target = BytesIO()
    PIL.Image.new("RGB", (width, height), (number % 256, number // 256, width % 256)).save(target, "PNG")
    return Image("image/png", base64.b64encode(target.getvalue()).decode())


def opened(model: str, store: Any = ":memory:", **images: int) -> Engine:
    config = Config(images=ImagesConfig(**images))
    return nexus.open(ledger=store, model=model, config=config, clock_ms=lambda: 1_760_000_000_000)


def judged(ctx: AssembledContext, wire: str) -> list[SentImage]:
    body = getattr(ctx, f"to_{wire}")()
    assert CHECKS[wire](body) == []
    assert image_problems(body, wire) == []
    return list(sent_images(body))


def turn(nx: Engine, *images: Image, **options: Any) -> AssembledContext:
    ctx = nx.assemble("look", images=images, **{"profile": "bare", **options})
    nx.record(ctx, SEEN)
    return ctx


def extends(before: AssembledContext, now: AssembledContext) -> bool:
    first, second = (json.dumps(ctx.to_provider(ctx.accounting.model_info.provider_format)) for ctx in (before, now))
    key = '"contents": [' if '"contents": [' in first else '"messages": ['
    beginning = json.dumps(_without_marks(json.loads(first)))
    return json.dumps(_without_marks(json.loads(second))).startswith(beginning.rstrip("]}")) and key in second


def _without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_marks(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_marks(item) for name, item in value.items() if name != "cache_control"}
    return value


@pytest.mark.parametrize(("count", "edge"), [(20, 3_000), (21, 2_000), (40, 2_000)])
def test_images_over_2000_pixels_are_shrunk_where_there_are_more_than_20(count: int, edge: int) -> None:
    """https://github.com/earendil-works/pi/issues/401"""
    with opened(MODELS["anthropic"]) as nx:
        ctx = nx.assemble("see", images=[shot(n, 3_000, 4) for n in range(count)], profile="bare")
        assert {max(image.opened.size) for image in judged(ctx, "anthropic")} == {edge}


@pytest.mark.parametrize("wire", ["openai", "responses", "gemini"])
def test_other_providers_have_no_limit_of_edge_by_number(wire: str) -> None:
    with opened(MODELS[wire]) as nx:
        ctx = nx.assemble("see", images=[shot(n, 3_000, 4) for n in range(30)], profile="bare")
        assert {max(image.opened.size) for image in judged(ctx, wire)} == {3_000}


def test_shrinking_by_number_is_a_declared_break_and_then_extends() -> None:
    """https://github.com/damianvtran/local-operator/issues/153"""
    with opened(MODELS["anthropic"]) as nx:
        made = [turn(nx, shot(n, 2_500 if n % 5 == 0 else 300, 4)) for n in range(26)]
        for number, (before, now) in enumerate(pairwise(made), 1):
            prefix = now.accounting.prefix
            assert extends(before, now) == (number != 20) == (prefix.state == "extends")
            assert prefix.causes == ((SHRUNK,) if number == 20 else ())
            judged(now, "anthropic")
        assert made[20].accounting.prefix.at == "message 1 of the history"
        assert made[20].accounting.prefix.lost_tokens > 0
        assert made[25].repairs.changes["image shrunk because there are many"] == 6


def test_no_break_is_declared_where_only_the_new_image_is_large() -> None:
    with opened(MODELS["anthropic"]) as nx:
        made = [turn(nx, shot(n)) for n in range(20)]
        now = turn(nx, shot(1, 2_500, 4))
        assert extends(made[-1], now) and now.accounting.prefix.state == "extends"
        after = turn(nx, shot(3))
        assert extends(now, after) and after.accounting.prefix.state == "extends"


@pytest.mark.parametrize(("model", "wire", "most"), [
    ("claude-sonnet-4-5", "anthropic", 100), ("openrouter/anthropic/claude-sonnet-4.5", "openai", 100),
    ("claude-sonnet-5-5", "anthropic", 100), ("some-served-model", "openai", 50), ("some-served-model", "responses", 50),
    ("gpt-4o", "openai", 500), ("gpt-4o", "responses", 500), ("gemini-2.5-pro", "gemini", 900),
])  # fmt: skip
def test_oldest_images_of_one_event_become_notes_at_the_number_limit(model: str, wire: str, most: int) -> None:
    """https://github.com/anomalyco/opencode/issues/47721"""
    with opened(model) as nx:
        images = [shot(n) for n in range(most + 30)]
        ctx = nx.assemble("see", images=images, profile="bare", budget=6_000_000)
        sent = judged(ctx, wire)
        assert most * 80 // 100 <= len(sent) <= most
        assert [image.data for image in sent] == [image.data for image in images[-len(sent) :]]
        assert sum(
            "not shown: a request may have" in str(part) for part in ctx.current_message.parts
        ) == most + 30 - len(sent)
        assert ctx.repairs.changes["image shown as a note because of the provider's limit"] == most + 30 - len(sent)


def test_notes_at_the_number_limit_come_in_batches() -> None:
    with opened(MODELS["anthropic"]) as nx:
        made = [turn(nx, *[shot(5 * n + k) for k in range(5)], budget=1_000_000) for n in range(36)]
        breaks = [number for number, ctx in enumerate(made) if ctx.accounting.prefix.state == "broken"]
        assert breaks[0] == 20 and len(breaks) <= 5
        for before, now in pairwise(made):
            causes = now.accounting.prefix.causes
            assert causes == (() if extends(before, now) else (NOTED,))
        assert all(80 <= len(judged(ctx, "anthropic")) <= 100 for ctx in made[20:])
        # The first user message is pinned, and its images stay.
        assert judged(made[-1], "anthropic")[0].data == shot(0).data


def test_images_too_large_together_become_notes() -> None:
    noise = PIL.Image.frombytes("RGB", (1_000, 1_000), random.Random(1).randbytes(3_000_000))
    with opened(MODELS["anthropic"]) as nx:
        images: list[Image] = []
        for number in range(9):
            target = BytesIO()
            noise.putpixel((0, 0), (number, 0, 0))
            noise.save(target, "PNG")
            images.append(Image("image/png", base64.b64encode(target.getvalue()).decode()))
        ctx = nx.assemble("see", images=images, profile="bare")
        sent = judged(ctx, "anthropic")
        assert sum(len(image.data) for image in sent) < 26_000_000 and 4 <= len(sent) < 9


def test_images_of_results_and_lists_are_limited_too() -> None:
    items: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for number in range(130):
        call = {"type": "tool_use", "id": f"c{number}", "name": "look", "input": {}}
        source = {"type": "base64", "media_type": "image/png", "data": shot(number).data}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": [{"type": "image", "source": source}]}
        items += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    with opened(MODELS["anthropic"]) as nx:
        ctx = nx.mirror(items, provider="anthropic", budget=1_000_000)
        sent = judged(ctx, "anthropic")
        assert 80 <= len(sent) <= 100 and sent[-1].data == shot(129).data
        states = [sent.state for sent in ctx.sent_messages if sent.message.role == "tool"]
        assert states.count("truncated") == 130 - len(sent)


def test_calls_with_limited_images_are_replayed_and_verified() -> None:
    store = SqliteLedger(clock_ms=lambda: 1_760_000_000_000)
    nx = opened(MODELS["anthropic"], store, longest_edge=2_400)
    made = [turn(nx, *[shot(10 * n + k, 2_500, 4) for k in range(10)], budget=1_000_000) for n in range(12)]
    for number, ctx in enumerate(made, 1):
        assert nx.replay("main", number).body_hash == ctx.body_hash
    # What is set now does not matter to what was sent then.
    assert opened(MODELS["anthropic"], store).replay("main", 12).body_hash == made[11].body_hash
    fresh = opened(MODELS["anthropic"], store, longest_edge=2_400)
    one, two = (each.assemble("next", profile="bare", budget=1_000_000) for each in (nx, fresh))
    assert one.to_anthropic() == two.to_anthropic() and one.body_hash == two.body_hash


@pytest.mark.parametrize("wire", MODELS)
def test_longest_edge_is_kept_to_wherever_an_image_comes_from(tmp_path: Path, wire: str) -> None:
    image = shot(1, 900, 30)
    with opened(MODELS[wire], longest_edge=500) as nx:
        ctx = nx.assemble("see", images=[image], profile="bare")
        assert [found.opened.size for found in judged(ctx, wire)] == [(500, 16)]
        mirrored = nx.mirror([Message("user", (Text("see"), image))], provider=None)
        assert [found.opened.size for found in judged(mirrored, wire)] == [(500, 16)]
        file = tmp_path / "chat.json"
        part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image.data}"}}
        items = [{"role": "user", "content": [part]}, {"role": "assistant", "content": "ok"}]
        file.write_text(json.dumps({"messages": items}))
        label = import_transcript(nx, next(iter(read_openai(file))))[0].session
        imported = nx.assemble("and?", session=label, profile="bare")
        assert [found.opened.size for found in judged(imported, wire)] == [(500, 16)]


def test_longest_edge_that_was_changed_is_a_declared_break() -> None:
    store = SqliteLedger(clock_ms=lambda: 1_760_000_000_000)
    turn(opened(MODELS["openai"], store), shot(1, 900, 30))
    nx = opened(MODELS["openai"], store, longest_edge=500)
    assert turn(nx).accounting.prefix.causes == ("the limits of images changed",)
    assert turn(nx).accounting.prefix.state == "extends"


PROFILES = ("bare", "layered", "repl", "tagged", "tagged_stable", "turnlog", "workspace")


@pytest.mark.parametrize("profile", PROFILES)
def test_old_images_become_notes_in_every_profile(profile: str) -> None:
    with opened("gpt-4o", keep_turns=1) as nx:
        made = [turn(nx, *[shot(3 * n + k) for k in range(3)], profile=profile, budget=40_000) for n in range(12)]
        shown = [len(judged(ctx, "openai")) for ctx in made]
        assert max(shown) <= 12
        if not profile.startswith("tagged"):  # there the blocks name the images of earlier turns
            assert "was shown here before" in json.dumps(made[-1].to_openai())


@pytest.mark.parametrize("profile", PROFILES)
def test_old_images_of_results_become_notes_in_every_profile(profile: str) -> None:
    with opened(MODELS["anthropic"], keep_turns=1) as nx:
        options: dict[str, Any] = {"profile": profile, "budget": 40_000}
        for number in range(8):
            call = ToolCall(f"c{number}", "look", "{}")
            nx.record(nx.assemble(f"look {number}", **options), nexus.AgentResult((assistant("", call),)))
            result = ToolResult(call.id, (Text("seen"), *[shot(3 * number + k) for k in range(3)]), "look")
            ctx = nx.assemble([Message("tool", (result,))], **options)
            assert len(judged(ctx, "anthropic")) <= 12
            nx.record(ctx, SEEN)


def test_mirrored_list_that_fits_keeps_its_images() -> None:
    items: list[Message] = []
    with opened("gpt-4o", keep_turns=1) as nx:
        for number in range(14):
            items.append(Message("user", (Text(f"look {number}"), shot(number))))
            ctx = nx.mirror(items, budget=60_000)
            assert ctx.cut is None and len(judged(ctx, "openai")) == number + 1
            reply = assistant(f"seen {number}")
            nx.record(ctx, nexus.AgentResult((reply,)))
            items.append(reply)


@pytest.mark.parametrize(("model", "count"), [("gpt-4o", 0), ("some-served-model", 1)])
def test_image_in_a_result_of_a_chat_list_is_a_note_for_openai_alone(model: str, count: int) -> None:
    """OpenAI takes text alone in messages of role `tool`; compatible servers take images."""
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{shot(1).data}"}}
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    items = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "seen"}, image]},
    ]
    with opened(model) as nx:
        ctx = nx.mirror(items, provider="openai")
        assert len(list(sent_images(ctx.to_openai()))) == count
        assert (CHECKS["openai"](ctx.to_openai()) == []) == (count == 0)
        assert len(judged(ctx, "responses")) == 1


def test_image_of_an_error_result_is_a_note_on_anthropic() -> None:
    """https://github.com/vellum-ai/vellum-assistant/issues/18387"""
    source = {"type": "base64", "media_type": "image/png", "data": shot(1).data}
    content = [{"type": "text", "text": "failed"}, {"type": "image", "source": source}]
    items = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "is_error": True, "content": content}],
        },
    ]
    with opened(MODELS["anthropic"]) as nx:
        assert judged(nx.mirror(items, provider="anthropic"), "anthropic") == []
        call = nx.assemble("go", profile="bare")
        nx.record(call, nexus.AgentResult((assistant("", ToolCall("c1", "look", "{}")),)))
        result = ToolResult("c1", (Text("failed"), shot(1)), "look", is_error=True)
        assert judged(nx.assemble([Message("tool", (result,))], profile="bare"), "anthropic") == []

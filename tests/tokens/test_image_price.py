"""What images cost in one view: as the model charges, never less than what was stored, whatever the name of the model."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.tokens.image_price import ANY_MODEL, ImagePrice, image_price
from nexus.tokens.images import image_tokens, max_image_tokens, rule_name
from nexus.tokens.model import resolve
from nexus.types.message import Image, Message, Text, ToolResult

SQUARE = Image("image/png", "AAAA", width=1024, height=1024)
SCREEN = Image("image/png", "AAAA", width=1920, height=1080)


@pytest.mark.parametrize(
    ("name", "picture", "tokens"),
    [
        ("claude-sonnet-4-5", SCREEN, 1560),
        ("claude-opus-4-7", SCREEN, 2691),
        ("us.anthropic.claude-opus-4-7-v1:0", SCREEN, 2691),
        ("openrouter/anthropic/claude-sonnet-5", SCREEN, 2691),
        ("claude-new-9", SCREEN, 2691),
        ("gpt-4o", SQUARE, 1369),
        ("gpt-4o-mini", SQUARE, 25501),
        ("ft:gpt-4o-mini-2024-07-18:acme::abc", SQUARE, 25501),
        ("azure/gpt-4o-mini", SQUARE, 25501),
        ("gpt-4.1-nano", SQUARE, 2520),
        ("gpt-5-mini-2025-08-07", SQUARE, 1659),
        ("gpt-7", Image("image/png", "AAAA", width=3200, height=3200), 12000),
        ("gemini-2.5-pro", Image("image/png", "AAAA", width=3072, height=3072), 4128),
        ("gemini-3-pro-preview", SQUARE, 1369),
        ("mistral-large", SQUARE, 1369),
        ("somebody/else", SQUARE, 1369),
    ],
)
def test_image_counts_as_model_charges_and_at_least_default(name: str, picture: Image, tokens: int) -> None:
    price = image_price(resolve(name))
    assert price.tokens(picture) == tokens
    assert price.more(picture) == tokens - max_image_tokens(picture)


def test_images_of_user_entry_count_as_its_model() -> None:
    model = resolve("my-deployment", {"my-deployment": {"same_as": "gpt-4o-mini"}})
    assert image_price(model).tokens(SQUARE) == 25501


def test_factor_below_one_does_not_make_images_cheaper() -> None:
    model = resolve("gpt-4o-mini")
    price = image_price(model, 0.75)
    assert math.floor(price.tokens(SQUARE) * 0.75) == 25501
    assert image_price(model, 1.5) == image_price(model)
    assert image_price(resolve("mistral-large"), 0.75) is ANY_MODEL


def test_models_with_same_rule_have_equal_image_price() -> None:
    assert image_price(resolve("claude-sonnet-4-5")) == image_price(resolve("claude-3-5-haiku-20241022"))
    assert image_price(resolve("gpt-5.6")) == image_price(resolve("gpt-7"))
    assert image_price(resolve("gpt-4o")) != image_price(resolve("gpt-4o-mini"))


def test_images_in_results_are_counted() -> None:
    price = ImagePrice("openai", "gpt-4o-mini")
    shown = Message("user", (Text("see"), SQUARE))
    result = Message("tool", (ToolResult("c1", (Text("seen"), SQUARE, SQUARE), "look"),))
    assert price.more_in(shown) == 25501 - 1369
    assert price.more_in(result) == 2 * price.more_in(shown)
    assert price.tokens_in(result) == 2 * 25501
    assert price.more_in(Message("user", (Text("see"),))) == 0
    assert ANY_MODEL.more_in(result) == 0


NAMES = ("gpt-4o", "gpt-4o-mini", "gpt-5", "gpt-5-nano", "gpt-5.2", "gpt-5.4", "gpt-5.5", "gpt-5.6", "gpt-7", "o1",
    "o4-mini", "chatgpt-4o-latest", "computer-use-preview", "claude-opus-4-6", "claude-opus-4-7", "claude-x",
    "gemini-2.0-flash", "gemini-3-flash", "gemini-flash-latest")  # fmt: skip


@settings(deadline=None)
@given(st.integers(0, 9_000), st.integers(0, 9_000), st.sampled_from(NAMES), st.floats(0.5, 3.0))
def test_image_count_is_never_below_model_charge(width: int, height: int, name: str, factor: float) -> None:
    model = resolve(name)
    picture = Image("image/png", "AAAA", width=width, height=height)
    price = image_price(model, factor)
    assert price.vendor is not None
    own = image_tokens(picture, price.vendor, name)
    assert price.tokens(picture) * factor >= own - 1e-6
    assert own == image_tokens(picture, price.vendor, rule_name(price.vendor, name))

"""Image formulas against the providers' documented examples."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nexus.tokens.images import UNKNOWN_SIZE_TOKENS, Detail, Vendor, effective_size, image_tokens, max_image_tokens
from nexus.types.message import Image


def image(width: int, height: int) -> Image:
    return Image("image/png", width=width, height=height)


@pytest.mark.parametrize(
    ("width", "height", "model", "detail", "tokens"),
    [
        (1024, 1024, "gpt-4o", "high", 765),
        (2048, 4096, "gpt-4o", "high", 1105),
        (4096, 8192, "gpt-4o", "low", 85),
        (512, 512, "gpt-4o", "high", 255),
        (1024, 1024, "gpt-4.1", "high", 765),
        (1024, 1024, "gpt-5", "high", 630),
        (1024, 1024, "gpt-5.1", "auto", 630),
        (1024, 1024, "o1", "high", 675),
        (1024, 1024, "o3-pro", "high", 675),
        (1024, 1024, "gpt-4o-mini", "high", 25501),
        (1024, 1024, "gpt-4o-mini-2024-07-18", "low", 2833),
        (1024, 1024, "computer-use-preview", "high", 581),
        (1024, 1024, "", "auto", 765),
    ],
)
def test_openai_tiles(width: int, height: int, model: str, detail: Detail, tokens: int) -> None:
    assert image_tokens(image(width, height), "openai", model, detail) == tokens


@pytest.mark.parametrize(
    ("width", "height", "model", "detail", "tokens"),
    [
        (1024, 1024, "gpt-5.4", "high", 1229),
        (1024, 1024, "gpt-5-mini", "high", 1659),
        (1800, 2400, "gpt-5-mini", "high", 2353),
        (1800, 2400, "o4-mini", "high", 2498),
        (1024, 1024, "gpt-4.1-nano", "high", 2520),
        (33, 32, "gpt-4.1-mini", "high", 4),
        (4000, 3000, "gpt-5.4", "original", 11868),
        (4000, 3000, "gpt-5.4", "auto", 2942),
        (4000, 3000, "gpt-5.5", "auto", 11868),
        (4000, 3000, "gpt-5.5", "high", 2942),
        (1800, 2400, "gpt-5.2", "auto", 1743),
        (1800, 2400, "gpt-5.3-codex", "auto", 1743),
        (1800, 2400, "gpt-5.1-codex-mini", "auto", 2353),
        (1024, 1024, "codex-mini-latest", "auto", 1762),
        (8000, 8000, "gpt-5.6-sol", "auto", 75000),
        (8000, 8000, "gpt-7", "auto", 75000),
        (100_000, 10, "gpt-5-mini", "high", 2489),
    ],
)
def test_openai_patches(width: int, height: int, model: str, detail: Detail, tokens: int) -> None:
    assert image_tokens(image(width, height), "openai", model, detail) == tokens


@pytest.mark.parametrize(
    ("width", "height", "model", "tokens"),
    [
        (1920, 1080, "claude-sonnet-4-5", 1560),
        (1920, 1080, "claude-opus-4-7", 2691),
        (1920, 1080, "claude-sonnet-5", 2691),
        (1920, 1080, "claude-opus-4-6", 1560),
        (1920, 1080, "", 1560),
        (200, 200, "claude-opus-4-5", 64),
        (1092, 1092, "claude-3-5-sonnet-20241022", 1521),
        (28, 28, "claude-haiku-4-5", 1),
        (8000, 8000, "claude-opus-5", 4761),
    ],
)
def test_anthropic_patches(width: int, height: int, model: str, tokens: int) -> None:
    assert image_tokens(image(width, height), "anthropic", model) == tokens


@pytest.mark.parametrize(
    ("width", "height", "model", "detail", "tokens"),
    [
        (384, 384, "gemini-2.5-pro", "auto", 258),
        (960, 540, "gemini-2.5-flash", "auto", 6 * 258),
        (385, 100, "gemini-2.0-flash", "auto", 2 * 258),
        (3072, 3072, "gemini-2.5-pro", "auto", 16 * 258),
        (3072, 3072, "gemini-3-pro-preview", "low", 280),
        (3072, 3072, "gemini-3.5-flash", "medium", 560),
        (64, 64, "gemini-3.1-pro-preview", "auto", 1120),
        (64, 64, "", "high", 1120),
    ],
)
def test_gemini_tiles_and_resolutions(width: int, height: int, model: str, detail: Detail, tokens: int) -> None:
    assert image_tokens(image(width, height), "gemini", model, detail) == tokens


def test_unknown_size_costs_standard_maximum() -> None:
    assert image_tokens(image(0, 0), "anthropic") == image_tokens(image(0, 9), "openai") == UNKNOWN_SIZE_TOKENS
    assert max_image_tokens(image(0, 0)) == UNKNOWN_SIZE_TOKENS == 1600


@pytest.mark.parametrize(
    ("provider", "model", "tokens"),
    [
        ("anthropic", "claude-sonnet-4-5", 1600),
        ("anthropic", "claude-opus-4-7", 4784),
        ("openai", "gpt-4o", 1600),
        ("openai", "gpt-4o-mini", 2833 + 8 * 5667),
        ("openai", "gpt-4.1-nano", 3779),
        ("openai", "gpt-5.5", 12000),
        ("openai", "gpt-5.6", 12000),
        ("gemini", "gemini-2.5-pro", 6192),
        ("gemini", "gemini-3-pro", 1120),
    ],
)
def test_unknown_size_costs_maximum_of_its_model(provider: Vendor, model: str, tokens: int) -> None:
    assert image_tokens(image(0, 0), provider, model) == tokens


@settings(deadline=None)
@given(
    st.integers(1, 20_000),
    st.integers(1, 20_000),
    st.sampled_from([("anthropic", "claude-opus-5"), ("openai", "gpt-4o-mini"), ("openai", "gpt-5.4")]),
)
def test_image_cost_is_at_most_cost_of_unknown_size(width: int, height: int, of: tuple[Vendor, str]) -> None:
    assert image_tokens(image(width, height), *of) <= image_tokens(image(0, 0), *of)


@settings(deadline=None)
@given(st.integers(1, 20_000), st.integers(1, 20_000))
def test_image_cost_is_bounded_and_symmetric(width: int, height: int) -> None:
    vendors: tuple[Vendor, ...] = ("openai", "anthropic", "gemini")
    limits = {"openai": 85 + 170 * 8, "anthropic": 1568, "gemini": 1120}
    for vendor in vendors:
        tokens = image_tokens(image(width, height), vendor)
        assert 1 <= tokens <= limits[vendor]
        assert tokens == image_tokens(image(height, width), vendor)
    assert max_image_tokens(image(width, height)) >= 1120


@settings(deadline=None)
@given(st.integers(1, 20_000), st.integers(1, 20_000))
def test_patch_budgets_and_high_resolution_hold_for_every_size(width: int, height: int) -> None:
    assert image_tokens(image(width, height), "openai", "o4-mini") <= -(-1536 * 172 // 100)
    assert image_tokens(image(width, height), "openai", "gpt-5.4") <= 3000
    assert image_tokens(image(width, height), "anthropic", "claude-opus-5") <= 4784


@pytest.mark.parametrize(
    ("width", "height", "provider", "model", "used"),
    [
        (4000, 3000, "anthropic", "claude-sonnet-4-5", (1269, 951)),
        (1568, 100, "anthropic", "claude-sonnet-4-5", (1568, 100)),
        (3000, 100, "anthropic", "claude-sonnet-4-5", (1568, 52)),
        (3000, 100, "anthropic", "claude-opus-4-7", (2576, 85)),
        (2048, 4096, "openai", "gpt-4o", (768, 1536)),
        (4000, 3000, "openai", "gpt-4o", (1024, 768)),
        (1800, 2400, "openai", "gpt-5-mini", (1056, 1408)),
        (9000, 9000, "openai", "gpt-5.6", (9000, 9000)),
        (6144, 1024, "gemini", "gemini-2.5-pro", (3072, 512)),
        (65_500, 1, "anthropic", "claude-sonnet-4-5", (1568, 1)),
        (1, 1, "openai", "gpt-4o", (1, 1)),
    ],
)
def test_effective_size_is_documented_one(
    width: int, height: int, provider: Vendor, model: str, used: tuple[int, int]
) -> None:
    assert effective_size(width, height, provider, model) == used


@settings(deadline=None)
@given(st.integers(1, 20_000), st.integers(1, 20_000), st.sampled_from(["gpt-4o", "gpt-5-mini", "gpt-5.4", "o4-mini"]))
@example(749, 4486, "gpt-4o")
def test_image_of_effective_size_costs_no_more(width: int, height: int, openai: str) -> None:
    models: tuple[tuple[Vendor, str], ...] = (
        ("openai", openai), ("anthropic", "claude-sonnet-4-5"), ("anthropic", "claude-opus-5"), ("gemini", "gemini-2.5-pro"),
    )  # fmt: skip
    for provider, model in models:
        used = effective_size(width, height, provider, model)
        assert used[0] <= width and used[1] <= height
        assert image_tokens(image(*used), provider, model) <= image_tokens(image(width, height), provider, model)

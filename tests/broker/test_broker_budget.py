"""The broker's functions of document 002."""

from __future__ import annotations

import pytest

from nexus.broker import MODEL_LIMITS, get_model_limit
from nexus.tokens.model import resolve


@pytest.mark.parametrize(
    ("model", "limit"),
    [("claude-sonnet-4", 200_000), ("claude-opus-4", 200_000), ("gpt-4o", 128_000), ("o1", 200_000), ("o3", 200_000)],
)
def test_documented_model_limits_apply_with_and_without_date(model: str, limit: int) -> None:
    """Document 002, "Token Limits by Model": `MODEL_LIMITS`, and `model.replace(/-\\d{8}$/, '')`."""
    assert MODEL_LIMITS[model] == get_model_limit(model) == get_model_limit(f"{model}-20250514") == limit


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "claude-sonnet-4-5", "o1-preview", "openrouter/openai/gpt-4o"])
def test_other_models_have_limit_of_model_table(model: str) -> None:
    """Decided on 002: the printed numbers "whatever the snapshot says; otherwise the snapshot"."""
    assert resolve(model).known
    assert get_model_limit(model) == resolve(model).context_tokens


def test_unknown_model_has_limit_128_000() -> None:
    """Document 002, "Token Limits by Model": `?? 128_000`."""
    assert get_model_limit("somebodys-own-model") == get_model_limit("") == 128_000

"""The whole context of every profile for one rich workspace and session, to the character, on every wire.

The texts in `forms/` are typed from documents 000 to 004 and what was decided on them; `NEXUS_GOLDEN=write` writes them
anew from the code, to be read line by line before they are committed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from golden.film_club import FilmClub, film_club, shown
from nexus.assembly.profiles.builtin import PROFILES
from nexus.workspace.environment.machine import this_system
from support.validity import CHECKS

TYPED = Path(__file__).parent / "forms"
FORMS = (
    "bare",
    "layered",  # document 002
    "repl",  # document 004
    "tagged",  # document 000
    "tagged_stable",
    "turnlog",  # document 001
    "worker",  # document 002, "Worker Agent System Prompt": the profile `layered` in that role
    "workspace",  # document 003
)
MODELS = {"openai": "gpt-4o", "responses": "gpt-4o", "anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FilmClub]:
    yield film_club(tmp_path, monkeypatch)
    this_system.cache_clear()


def test_every_ready_profile_has_a_golden_file() -> None:
    assert {*FORMS} == {*PROFILES, "worker"} == {path.stem for path in TYPED.glob("*.txt")}


@pytest.mark.parametrize("form", FORMS)
def test_the_whole_context_is_as_typed_from_the_documents(place: FilmClub, form: str) -> None:
    place.hold(form)
    ctx = place.next(form)
    file, text = TYPED / f"{form}.txt", shown(ctx, place)
    if os.environ.get("NEXUS_GOLDEN") == "write":
        file.write_text(text, "utf-8", newline="\n")
    assert text == file.read_text("utf-8")
    assert sum(item.tokens for item in ctx.accounting.token_breakdown) == ctx.token_budget.used.total


@pytest.mark.parametrize("form", FORMS)
def test_every_provider_takes_every_form(place: FilmClub, form: str) -> None:
    """Decided: "Every profile's output validates on all wires"; for a model of that provider, and for the one before."""
    place.hold(form)
    begun = place.next(form)
    for wire, check in CHECKS.items():
        for ctx in (begun, place.next(form, MODELS[wire])):
            assert check(getattr(ctx, f"to_{wire}")()) == [], wire

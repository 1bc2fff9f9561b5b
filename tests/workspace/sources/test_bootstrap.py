"""Bootstrap files (document 003, "Bootstrap Files")."""

from __future__ import annotations

from pathlib import Path

import pytest

from nexus.errors import OverCap
from nexus.types.config import Config, InstructionsConfig
from nexus.workspace.prompts import templates
from workspace.sources.gathering import context, told, write


def test_bootstrap_files_are_in_documented_order_under_their_names(tmp_path: Path) -> None:
    """Document 003, "Bootstrap Files": "AGENTS.md … SOUL.md … USER.md … TOOLS.md … IDENTITY.md"."""
    write(tmp_path, IDENTITY="i", TOOLS="t", USER="u", SOUL="s", AGENTS="a", OTHER="o")
    write(tmp_path / "sub", AGENTS="not of the root")
    ctx = context(tmp_path, "bootstrap")
    assert (
        ctx.system_prompt
        == "# AGENTS.md\n\na\n\n# SOUL.md\n\ns\n\n# USER.md\n\nu\n\n# TOOLS.md\n\nt\n\n# IDENTITY.md\n\ni"
    )
    layers = [(block.source, block.layer, block.trust) for block in ctx.provenance.blocks]
    assert layers == [
        ("AGENTS.md", "Workspace", "workspace"),
        ("SOUL.md", "Persona", "workspace"),
        ("USER.md", "Persona", "user"),
        ("TOOLS.md", "Workspace", "workspace"),
        ("IDENTITY.md", "Persona", "workspace"),
    ]


def test_existing_bootstrap_files_are_included(tmp_path: Path) -> None:
    """Document 003, "Bootstrap Files": "automatically included in the system prompt if they exist"."""
    write(tmp_path, SOUL="Kind.")
    ctx = context(tmp_path, "bootstrap")
    assert (ctx.system_prompt, ctx.warnings) == ("# SOUL.md\n\nKind.", ())


def test_unchanged_template_counts_as_absent_for_any_line_ends(tmp_path: Path) -> None:
    """Decided on 003: "An untouched template counts as absent … and is reported"."""
    write(tmp_path, **{name.removesuffix(".md"): templates()[name] for name in ("AGENTS.md", "SOUL.md", "USER.md")})
    (tmp_path / "SOUL.md").write_bytes(templates()["SOUL.md"].replace("\n", "\r\n").encode())
    write(tmp_path, USER=templates()["USER.md"] + "- Name: Ada\n")
    ctx = context(tmp_path, "bootstrap")
    assert [block.source for block in ctx.provenance.blocks] == ["USER.md"]
    assert "- Name: Ada" in ctx.system_prompt
    note = "omitted: unchanged template"
    assert told(ctx.warnings) == {"AGENTS.md": note, "SOUL.md": note}


def test_edited_template_is_shown_without_marker(tmp_path: Path) -> None:
    write(tmp_path, SOUL=templates()["SOUL.md"] + "Kind.\n", USER=templates()["USER.md"].splitlines()[0] + "\n")
    ctx = context(tmp_path, "bootstrap")
    assert [block.source for block in ctx.provenance.blocks] == ["SOUL.md"]
    assert "untouched" not in ctx.system_prompt
    assert ctx.system_prompt.startswith("# SOUL.md\n\n# Soul\n") and ctx.system_prompt.endswith("Kind.")


def test_bootstrap_file_over_cap_is_reported_or_rejected(tmp_path: Path) -> None:
    """Decided: over the cap is a warning and a line that says where to read the rest; `caps="error"` refuses instead."""
    write(tmp_path, TOOLS="words of tools\n" * 2_000)
    ctx = context(tmp_path, "bootstrap")
    assert "cap per file: 20,000" in told(ctx.warnings)["TOOLS.md"]
    assert "more characters of TOOLS.md left out" in ctx.system_prompt
    with pytest.raises(OverCap, match=r"TOOLS\.md"):
        context(tmp_path, "bootstrap", config=Config(instructions=InstructionsConfig(caps="error")))


def test_bootstrap_files_with_same_text_are_shown_once(tmp_path: Path) -> None:
    write(tmp_path, SOUL="Kind.", IDENTITY="Kind.\n")
    ctx = context(tmp_path, "bootstrap")
    assert [block.source for block in ctx.provenance.blocks] == ["SOUL.md"]
    assert "same text as SOUL.md" in told(ctx.warnings)["IDENTITY.md"]


def test_bootstrap_files_have_a_total_cap(tmp_path: Path) -> None:
    names = ("AGENTS", "SOUL", "USER", "TOOLS")
    write(tmp_path, **{name: f"{name.lower()} words\n" * 1_600 + "- MUST stay" for name in names}, IDENTITY="small")
    ctx = context(tmp_path, "bootstrap")
    assert len(ctx.system_prompt) < 61_500
    assert ctx.system_prompt.count("- MUST stay") == 4
    assert "# IDENTITY.md\n\nsmall" in ctx.system_prompt
    assert all("cap: 60,000 for all bootstrap files" in told(ctx.warnings)[f"{name}.md"] for name in names)

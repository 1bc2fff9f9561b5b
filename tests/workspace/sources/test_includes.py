"""`@file` lines in instruction files: what is put in, and what stays as the text stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.errors import OverCap
from nexus.types.config import Config, InstructionsConfig
from nexus.workspace.sources.instructions import MAX_INCLUDES, MAX_LOOKUPS, include_lines
from workspace.sources.gathering import context, told, write


def shown(root: Path, **options: Any) -> tuple[str, dict[str, str]]:
    """The text of the local NEXUS.md's block, without its heading, and the warnings."""
    ctx = context(root, "instructions", **options)
    text = next(block.text for block in ctx.provenance.blocks if block.source == "NEXUS.md")
    return text.partition("\n\n")[2], told(ctx.warnings)


def with_depth(depth: int) -> Config:
    return Config(instructions=InstructionsConfig(include_depth=depth))


def without_caps() -> Config:
    return Config(instructions=InstructionsConfig(file_chars=10**6, total_chars=10**6))


def test_path_line_inserts_file_between_naming_comments(tmp_path: Path) -> None:
    write(tmp_path, NEXUS="Before.\n@docs/style.md\nAfter.", docs__style="Use tabs.\n")
    text, warned = shown(tmp_path)
    assert text == "Before.\n<!-- docs/style.md -->\nUse tabs.\n<!-- end of docs/style.md -->\nAfter."
    assert warned == {}


def test_paths_on_one_line_and_list_items_are_includes_but_mentions_are_not(
    tmp_path: Path,
) -> None:
    assert [line.paths for line in include_lines("@a.md @b.md\n- @c.md\n  * @d.md  \n")] == [
        ("a.md", "b.md"),
        ("c.md",),
        ("d.md",),
    ]
    text = "Ask @alice, see @docs/a.md for more.\nme@example.com\n@ a.md\n    @indented.md\n`@code.md`\n"
    assert include_lines(text) == ()
    write(tmp_path, NEXUS="@a.md @b.md", a="A", b="B")
    assert "A\n<!-- end of a.md -->\n<!-- b.md -->\nB" in shown(tmp_path)[0]


def test_code_fences_include_nothing(tmp_path: Path) -> None:
    text = "```\n@a.md\n```\n~~~text\n@a.md\n```\n@a.md\n~~~\nend"
    write(tmp_path, NEXUS=text, a="A")
    assert shown(tmp_path) == (text, {})


def test_paths_are_relative_to_including_file_and_included_once(tmp_path: Path) -> None:
    write(tmp_path, NEXUS="@docs/one.md\n@docs/two.md", docs__one="1\n@two.md", docs__two="2")
    text, warned = shown(tmp_path)
    assert text.count("2\n<!-- end of docs/two.md -->") == 1
    assert text.endswith("\n@docs/two.md")
    assert warned == {"NEXUS.md": "'@docs/two.md' omitted: duplicate of docs/two.md"}


def test_circular_include_stays_as_text_with_warning(tmp_path: Path) -> None:
    write(tmp_path, NEXUS="n\n@a.md", a="a\n@b.md", b="b\n@./a.md\n@NEXUS.md")
    text, warned = shown(tmp_path)
    assert "b\n@./a.md\n@NEXUS.md\n<!-- end of b.md -->" in text
    assert warned["b.md"] == "'@./a.md' omitted: circular include; '@NEXUS.md' omitted: circular include"


def test_failed_include_stays_as_text_with_warning(tmp_path: Path) -> None:
    root = tmp_path / "ws"
    secret = write(tmp_path, secret="SECRET") / "secret.md"
    lines = [
        "@missing.md",
        "@folder",
        "@picture.png",
        "@../secret.md",
        f"@{secret}",
        "@link.md",
        "@~/secret.md",
        "@empty.md",
    ]
    write(root, NEXUS="\n".join(lines), empty=" \n")
    (root / "folder").mkdir()
    (root / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    (root / "link.md").symlink_to(secret)
    text, warned = shown(root)
    assert text == "\n".join(lines)
    notes = warned["NEXUS.md"].split("; ")
    assert [note.partition(" omitted: ")[0] for note in notes] == [f"'{line}'" for line in lines]
    why = [note.partition(" omitted: ")[2] for note in notes]
    assert why[:4] == [
        "file not found or empty",
        "not a regular file",
        "not text (3 of 16 characters are NUL)",
        "outside this folder",
    ]
    assert why[4] == "outside this folder"
    assert why[5].startswith("path outside the workspace")
    assert why[7] == "file not found or empty"


def test_single_word_without_file_is_a_mention(tmp_path: Path) -> None:
    write(tmp_path, NEXUS="Ask:\n- @alice\n- @bob\n@README")
    (tmp_path / "README").write_text("Read this.")
    text, warned = shown(tmp_path)
    assert text == "Ask:\n- @alice\n- @bob\n<!-- README -->\nRead this.\n<!-- end of README -->"
    assert warned == {}


def test_ancestor_file_includes_from_its_own_folder_only(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path, AGENTS="@docs/style.md", docs__style="Tabs.")
    write(tmp_path / "app", AGENTS="@../docs/style.md")
    ctx = context(tmp_path / "app", "instructions")
    texts = {block.source: block.text for block in ctx.provenance.blocks}
    assert "<!-- ../docs/style.md -->\nTabs." in texts["../AGENTS.md"]
    assert texts["AGENTS.md"].endswith("\n\n@../docs/style.md")
    assert "outside this folder" in told(ctx.warnings)["AGENTS.md"]


def test_include_depth_is_configurable(tmp_path: Path) -> None:
    for at in range(8):
        write(tmp_path, **{f"f{at}": f"text {at}\n@f{at + 1}.md"})
    write(tmp_path, NEXUS="@f1.md")
    text, warned = shown(tmp_path)
    assert "text 5\n@f6.md" in text
    assert warned == {"f5.md": "'@f6.md' omitted: nested more than 5 deep"}
    text, warned = shown(tmp_path, config=with_depth(1))
    assert "text 1\n@f2.md" in text
    assert shown(tmp_path, config=with_depth(0)) == ("@f1.md", {})


def test_claude_md_that_only_includes_agents_md_is_omitted(tmp_path: Path) -> None:
    write(tmp_path, AGENTS="The rules.", CLAUDE="@AGENTS.md\n")
    ctx = context(tmp_path, "instructions")
    assert [block.source for block in ctx.provenance.blocks if block.trust == "workspace"] == ["AGENTS.md"]
    assert told(ctx.warnings) == {"CLAUDE.md": "'@AGENTS.md' omitted: duplicate of AGENTS.md"}


def test_included_instruction_or_bootstrap_file_is_shown_once(tmp_path: Path) -> None:
    write(tmp_path, NEXUS="@AGENTS.md\n@SOUL.md", AGENTS="The rules.", SOUL="Kind.")
    ctx = context(tmp_path, "instructions", "bootstrap")
    assert ctx.system_prompt.count("The rules.") == ctx.system_prompt.count("Kind.") == 1
    assert told(ctx.warnings)["SOUL.md"] == "omitted: same text as NEXUS.md"


def test_included_file_has_the_file_cap(tmp_path: Path) -> None:
    write(tmp_path, NEXUS="@long.md", long="words of a long file\n" * 2_000)
    ctx = context(tmp_path, "instructions")
    block = next(block for block in ctx.provenance.blocks if block.source == "NEXUS.md")
    assert "more characters of long.md left out (cap 20,000)" in block.text
    assert block.omitted_chars > 20_000
    assert "cap per file: 20,000" in told(ctx.warnings)["long.md"]
    refusing = Config(instructions=InstructionsConfig(caps="error"))
    with pytest.raises(OverCap, match=r"long\.md too long: 41,999 characters"):
        context(tmp_path, "instructions", config=refusing)


def test_open_code_fence_ends_with_included_file(tmp_path: Path) -> None:
    write(tmp_path, NEXUS="@a.md\nAfter.", a="```sh\nmake")
    assert shown(tmp_path)[0] == "<!-- a.md -->\n```sh\nmake\n```\n<!-- end of a.md -->\nAfter."


def test_number_of_includes_is_bounded(tmp_path: Path) -> None:
    write(tmp_path, NEXUS="\n".join(f"@f{at}.md" for at in range(10_000)))
    for at in range(100):
        write(tmp_path, **{f"f{at}": f"text {at}"})
    text, warned = shown(tmp_path, config=without_caps())
    assert text.count("<!-- end of") == MAX_INCLUDES
    assert f"@f{MAX_INCLUDES}.md" in text.split("\n"), "the others stay as they stand"
    assert warned == {"NEXUS.md": f"'@f{MAX_INCLUDES}.md' and later includes omitted: too many"}


def test_number_of_include_lookups_is_bounded(tmp_path: Path) -> None:
    lines = [f"@none{at}.md" for at in range(10_000)]
    write(tmp_path, NEXUS="\n".join(lines))
    ctx = context(tmp_path, "instructions", config=without_caps())
    assert all(line in ctx.system_prompt for line in (lines[0], lines[-1]))
    assert len(ctx.warnings) == MAX_LOOKUPS + 1


def rules(root: Path, config: Config | None = None) -> tuple[str, dict[str, str]]:
    """The rules of the profile `layered`, without their heading, and all warnings."""
    with nexus.open(root, ledger=":memory:", config=config or Config()) as nx:
        ctx = nx.assemble("hi")
    return next(block.text for block in ctx.provenance.blocks if block.name == "rules").removeprefix(
        "# Workspace rules\n\n"
    ), told(ctx.warnings)


def test_layered_rules_follow_the_same_include_rules(tmp_path: Path) -> None:
    """Document 002, "Rules" in the system slot; document 004: instruction files and what they include."""
    root = tmp_path / "ws"
    write(tmp_path, secret="SECRET")
    write(
        root,
        AGENTS="Before.\n@docs/style.md\n@../secret.md\nAsk @alice.\n@alice\n@AGENTS.md",
        docs__style="Tabs.\n@deep.md",
    )
    write(root, docs__deep="Deep.")
    text, warned = rules(root)
    assert text.startswith(
        "Before.\n<!-- docs/style.md -->\nTabs.\n<!-- docs/deep.md -->\nDeep.\n<!-- end of docs/deep.md"
    )
    assert text.endswith("\n@../secret.md\nAsk @alice.\n@alice\n@AGENTS.md")
    assert warned["AGENTS.md"] == (
        "'@../secret.md' omitted: outside this folder; '@AGENTS.md' omitted: circular include"
    )
    assert "'@deep.md' omitted: nested more than 1 deep" in rules(root, with_depth(1))[1]["docs/style.md"]
    assert "@docs/style.md" in rules(root, with_depth(0))[0]


def test_layered_rules_with_includes_respect_caps(tmp_path: Path) -> None:
    write(tmp_path, AGENTS="@a.md\n@b.md", a="word " * 300, b="other " * 300)
    both = Config(instructions=InstructionsConfig(file_chars=1_000, total_chars=1_500))
    text, warned = rules(tmp_path, both)
    assert len(text) < 1_900
    assert "cap per file: 1,000" in warned["a.md"]
    assert "cap: 1,500 for all instruction files" in warned["AGENTS.md"]
    strict = Config(instructions=InstructionsConfig(file_chars=1_000, caps="error"))
    with pytest.raises(OverCap, match=r"a\.md"):
        rules(tmp_path, strict)


def test_file_included_by_layered_rules_is_not_repeated(tmp_path: Path) -> None:
    write(tmp_path, AGENTS="Rules.\n@TOOLS.md", TOOLS="Use the saw.")
    with nexus.open(tmp_path, ledger=":memory:", config=Config()) as nx:
        ctx = nx.assemble("hi")
    assert ctx.system_prompt.count("Use the saw.") == 1
    assert told(ctx.warnings)["TOOLS.md"] == "omitted: same text as AGENTS.md"


def test_binary_rules_file_is_omitted_and_reported(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_bytes(b"\x7fELF\0\0\0\1" * 20)
    with nexus.open(tmp_path, ledger=":memory:", config=Config()) as nx:
        ctx = nx.assemble("hi")
    assert "rules" not in [block.name for block in ctx.provenance.blocks]
    assert "not text" in told(ctx.warnings)["AGENTS.md"]

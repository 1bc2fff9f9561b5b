"""Instruction files in layers: which ones count, in which order, once each, within their caps."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.errors import OverCap
from nexus.types.config import Config, InstructionsConfig
from nexus.workspace.instruction_layers import DEFAULTS, MAX_ANCESTORS
from workspace.sources.gathering import context, opened, put, told, write


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder of Nexus, in a home folder of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("NEXUS_HOME")
    (tmp_path / "user" / ".nexus").mkdir(parents=True)
    return tmp_path / "user" / ".nexus"


@pytest.fixture
def repo(home: Path) -> Path:
    """A repository with a workspace two folders deep in it."""
    root = home.parent / "src" / "repo"
    (root / ".git").mkdir(parents=True)
    (root / "packages" / "app").mkdir(parents=True)
    return root


def blocks(ctx: nexus.AssembledContext) -> dict[str, str]:
    return {block.source: block.text for block in ctx.provenance.blocks if block.slot == "system"}


def own(ctx: nexus.AssembledContext) -> dict[str, str]:
    """The blocks without the packaged personal prompt."""
    return {origin: text for origin, text in blocks(ctx).items() if not origin.startswith("nexus:")}


def limited(**values: Any) -> Config:
    return Config(instructions=InstructionsConfig(**values))


def test_layers_are_ordered_global_ancestors_local_with_paths(home: Path, repo: Path) -> None:
    """Document 004, "Implementation Status": "Global → ancestors → local with labeled sections"."""
    write(home, NEXUS="Be brief.", AGENTS="Mine everywhere.")
    write(repo, AGENTS="Of the repository.")
    write(repo / "packages", CLAUDE="Of all packages.")
    write(repo / "packages" / "app", NEXUS="Of the app.")
    ctx = context(repo / "packages" / "app", "instructions")
    assert ctx.system_prompt == (
        "# Personal instructions (~/.nexus/NEXUS.md)\n\nBe brief.\n\n"
        "# Global instructions (~/.nexus/AGENTS.md)\n\nMine everywhere.\n\n"
        "# Ancestor instructions (../../AGENTS.md)\n\nOf the repository.\n\n"
        "# Ancestor instructions (../CLAUDE.md)\n\nOf all packages.\n\n"
        "# Local instructions (NEXUS.md)\n\nOf the app."
    )
    assert [block.trust for block in ctx.provenance.blocks if block.slot == "system"] == ["user"] * 2 + [
        "workspace"
    ] * 3
    assert {block.layer for block in ctx.provenance.blocks if block.slot == "system"} == {"Workspace"}
    assert ctx.warnings == ()


def test_first_existing_personal_file_counts(home: Path, repo: Path) -> None:
    """Document 004, "PromptLoader": "Personal Layer (first match wins)"; `~/.nexus` stands before `~/.nexus3`."""
    assert blocks(context(repo, "instructions")) == {
        "nexus:defaults/NEXUS.md": f"# Personal instructions (nexus:defaults/NEXUS.md)\n\n{DEFAULTS.read_text().strip()}"
    }
    older = write(home.parent / ".nexus3", NEXUS="older")
    assert list(blocks(context(repo, "instructions"))) == ["~/.nexus3/NEXUS.md"]
    write(home, NEXUS="newer")
    assert list(blocks(context(repo, "instructions"))) == ["~/.nexus/NEXUS.md"]
    (older / "NEXUS.md").unlink()
    elsewhere = write(home.parent / "elsewhere", NEXUS="named")
    assert list(blocks(context(repo, "instructions", home=elsewhere))) == ["~/elsewhere/NEXUS.md"]


@pytest.mark.usefixtures("home")
def test_instruction_names_and_order_are_configurable(repo: Path) -> None:
    write(repo, NEXUS="n", AGENTS="a", CLAUDE="c", OTHER="o")
    assert list(own(context(repo, "instructions"))) == ["NEXUS.md", "AGENTS.md", "CLAUDE.md"]
    config = limited(names=("OTHER.md", "AGENTS.md"))
    assert list(own(context(repo, "instructions", config=config))) == ["OTHER.md", "AGENTS.md"]


@pytest.mark.usefixtures("home")
def test_only_workspace_folder_counts_without_repository(tmp_path: Path) -> None:
    write(tmp_path / "loose", AGENTS="not about it")
    inner = write(tmp_path / "loose" / "inner", AGENTS="mine")
    assert list(own(context(inner, "instructions"))) == ["AGENTS.md"]


def test_repository_root_is_the_last_ancestor(home: Path, repo: Path) -> None:
    write(repo.parent, AGENTS="beside other repositories")
    write(home.parent, AGENTS="in the home folder")
    write(repo, AGENTS="root")
    (repo / "packages" / "app" / ".git").write_text("gitdir: ../../.git/worktrees/app\n")
    assert list(own(context(repo / "packages", "instructions"))) == ["../AGENTS.md"]
    assert list(own(context(repo / "packages" / "app", "instructions"))) == [], "a work tree is a root too"


def test_folders_above_home_are_not_ancestors(home: Path, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path, AGENTS="above the home")
    write(home.parent, AGENTS="in the home")
    inner = write(home.parent / "work", AGENTS="mine")
    assert list(own(context(inner, "instructions"))) == ["AGENTS.md"]
    assert list(own(context(home.parent, "instructions"))) == ["AGENTS.md"]
    (home.parent / ".git").mkdir()
    assert list(own(context(inner, "instructions"))) == ["../AGENTS.md", "AGENTS.md"]


@pytest.mark.usefixtures("home")
def test_repository_of_another_user_is_ignored(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(repo, AGENTS="planted")
    real = os.stat

    def of_another(path: Any, **named: Any) -> os.stat_result:
        found = real(path, **named)
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:10])) if str(path) == str(repo) else found

    monkeypatch.setattr(os, "stat", of_another)
    ctx = context(repo / "packages" / "app", "instructions")
    assert own(ctx) == {}
    assert "another user" in told(ctx.warnings)[".git"]


@pytest.mark.usefixtures("home")
def test_deep_chain_of_ancestors_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path
    monkeypatch.chdir(tmp_path)
    for _ in range(300):
        deep /= "d"
        os.mkdir("d")  # noqa: PTH102 - paths of this length are made step by step
        os.chdir("d")
        Path("AGENTS.md").write_text(f"at {len(deep.parts)}")
    (tmp_path / ".git").mkdir()
    ctx = context(deep, "instructions")
    assert list(own(ctx)) == ["AGENTS.md"]
    assert f"{MAX_ANCESTORS} folders above" in told(ctx.warnings)[".git"]
    (deep.parents[MAX_ANCESTORS - 1] / ".git").mkdir()
    assert len(own(context(deep, "instructions"))) == MAX_ANCESTORS + 1


@pytest.mark.usefixtures("home")
def test_same_text_under_several_names_is_shown_once(repo: Path) -> None:
    """CLAUDE.md is often a link to AGENTS.md, or a copy of it."""
    write(repo, AGENTS="The rules.\n", NEXUS="The rules.")
    (repo / "CLAUDE.md").symlink_to("AGENTS.md")
    ctx = context(repo, "instructions")
    assert own(ctx) == {"NEXUS.md": "# Local instructions (NEXUS.md)\n\nThe rules."}
    assert told(ctx.warnings) == dict.fromkeys(("AGENTS.md", "CLAUDE.md"), "omitted: same text as NEXUS.md")


@pytest.mark.usefixtures("home")
def test_link_to_truncated_file_is_shown_once(repo: Path) -> None:
    write(repo, AGENTS="a line of rules\n" * 3_000)
    (repo / "CLAUDE.md").symlink_to("AGENTS.md")
    assert list(own(context(repo, "instructions"))) == ["AGENTS.md"]


def test_file_of_another_source_is_shown_once(home: Path, repo: Path) -> None:
    """AGENTS.md is an instruction file (document 004), a bootstrap file (003) and the rules (002)."""
    write(repo, AGENTS="Shared.", SOUL="Kind.")
    ctx = context(repo, "rules", "instructions", "bootstrap")
    assert [block.source for block in ctx.provenance.blocks if block.slot == "system"] == [
        "AGENTS.md",
        "nexus:defaults/NEXUS.md",
        "SOUL.md",
    ]
    assert ctx.system_prompt.count("Shared.") == 1
    assert told(ctx.warnings)["AGENTS.md"].count("duplicate of an earlier block") == 1
    write(home, NEXUS="Shared.")
    ctx = context(repo, "instructions", "bootstrap")
    assert ctx.system_prompt.count("Shared.") == 1
    assert "same text as ~/.nexus/NEXUS.md" in told(ctx.warnings)["AGENTS.md"]


@pytest.mark.usefixtures("home")
def test_call_with_omitted_duplicates_replays(repo: Path) -> None:
    write(repo, AGENTS="Shared.\n@more.md", SOUL="Kind.", more="More.")
    with opened(repo, "instructions", "bootstrap", "surroundings") as nx:
        ctx = nx.assemble("hi", profile="mine")
        nx.record(ctx, nexus.AgentResult((nexus.assistant("hello"),)))
        write(repo, AGENTS="Changed.", SOUL="Changed.")
        again = nx.replay("main", 1)
    assert again.system_prompt == ctx.system_prompt
    assert again.body_hash == ctx.body_hash
    assert [block.files for block in again.provenance.blocks] == [block.files for block in ctx.provenance.blocks]


@pytest.mark.usefixtures("home")
def test_call_recorded_before_caps_error_replays(repo: Path) -> None:
    write(repo, AGENTS="a line of rules\n" * 3_000)
    with nexus.open(repo, ledger=repo / "l.db") as nx:
        ctx = nx.assemble("hi")
        nx.record(ctx, nexus.AgentResult((nexus.assistant("hello"),)))
    with nexus.open(repo, ledger=repo / "l.db", config=limited(caps="error")) as nx:
        assert nx.replay("main", 1).system_prompt == ctx.system_prompt
        with pytest.raises(OverCap):
            nx.assemble("hi")


@pytest.mark.usefixtures("home")
def test_file_over_cap_keeps_headings_and_rules_with_warning(repo: Path) -> None:
    filler = "Some words of no weight.\n" * 1_000
    write(repo, AGENTS=f"# Start\n{filler}\n## Release\nYou MUST sign it.\n\n{filler}")
    ctx = context(repo, "instructions")
    assert "## Release\nYou MUST sign it.\n" in ctx.system_prompt
    assert "more characters of AGENTS.md left out (cap 20,000); read the file for the rest]" in ctx.system_prompt
    assert "cap per file: 20,000" in told(ctx.warnings)["AGENTS.md"]
    assert "AGENTS.md" in ctx.report.split("Omitted:")[1]


@pytest.mark.usefixtures("home")
def test_largest_files_are_truncated_for_total_cap(repo: Path) -> None:
    filler = "Some words of no weight.\n" * 700
    folder = repo / "packages" / "app"
    for at, place in enumerate((repo, repo / "packages", folder)):
        write(place, NEXUS=f"{filler}- NEVER do {at}\n", AGENTS=f"small {at}", CLAUDE=f"{filler}- ALWAYS do {at}\n")
    ctx = context(folder, "instructions")
    texts = own(ctx)
    assert len(texts) == 9
    assert sum(map(len, texts.values())) < 60_000 + 9 * 200, "Nexus's own lines come on top"
    for at in range(3):
        assert f"- NEVER do {at}" in ctx.system_prompt
        assert f"- ALWAYS do {at}" in ctx.system_prompt
        assert f"small {at}" in ctx.system_prompt
    assert len(ctx.warnings) == 6
    assert all("cap: 60,000 for all instruction files" in one.message for one in ctx.warnings)
    assert all(block.omitted_chars for block in ctx.provenance.blocks if "no weight" in block.text)


def test_workspace_files_never_truncate_user_files(home: Path, repo: Path) -> None:
    mine = "Words of mine.\n" * 1_000 + "the end"
    write(home, NEXUS=mine, AGENTS=mine + "s")
    folder = repo
    for at in range(12):
        folder = write(folder / "d", NEXUS=f"{at}\n" * 5_000, AGENTS=f"a{at}\n" * 5_000)
    ctx = context(folder, "instructions")
    texts = own(ctx)
    assert texts["~/.nexus/NEXUS.md"].endswith(mine)
    assert texts["~/.nexus/AGENTS.md"].endswith(mine + "s")
    assert len(texts) == 26


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("source", ["instructions", "bootstrap", "rules"])
def test_caps_error_names_file_size_and_cap(repo: Path, source: str) -> None:
    """Decided on all documents: "`caps="error"` refuses instead"."""
    write(repo, AGENTS="x" * 5_000)
    with pytest.raises(OverCap, match=r"AGENTS\.md too long: 5,000 characters, the cap is 2,000") as caught:
        context(repo, source, config=limited(caps="error", file_chars=2_000))
    error = caught.value
    assert (error.origin, error.chars, error.cap_chars) == ("AGENTS.md", 5_000, 2_000)


@pytest.mark.usefixtures("home")
def test_caps_error_covers_total_and_memory(repo: Path) -> None:
    write(repo, AGENTS="x" * 900, CLAUDE="y" * 900)
    with pytest.raises(OverCap, match=r"all instruction files together too long: .* the cap is 1,500"):
        context(repo, "instructions", config=limited(caps="error", total_chars=1_500))
    write(repo, MEMORY="z" * 3_000)
    with pytest.raises(OverCap, match=r"MEMORY\.md too long: 3,000"):
        context(repo, "memory", config=limited(caps="error", file_chars=2_000))


def test_user_files_may_link_anywhere_but_workspace_files_may_not(home: Path, repo: Path) -> None:
    dotfiles = write(home.parent / "dotfiles", prompt="Mine.\n@part.md", part="A part.")
    (home / "NEXUS.md").symlink_to(dotfiles / "prompt.md")
    (repo / "AGENTS.md").symlink_to(dotfiles / "prompt.md")
    ctx = context(repo, "instructions")
    assert "Mine.\n<!-- ~/dotfiles/part.md -->\nA part." in own(ctx)["~/.nexus/NEXUS.md"]
    assert "outside" in told(ctx.warnings)["AGENTS.md"]


def test_circular_link_and_pipe_are_warnings(home: Path, repo: Path) -> None:
    (home / "NEXUS.md").symlink_to(home / "NEXUS.md")
    os.mkfifo(repo / "AGENTS.md")
    (repo / "CLAUDE.md").mkdir()
    ctx = context(repo, "instructions")
    assert list(blocks(ctx)) == ["nexus:defaults/NEXUS.md"]
    assert set(told(ctx.warnings)) == {"~/.nexus/NEXUS.md", "AGENTS.md", "CLAUDE.md"}


@pytest.mark.usefixtures("home")
def test_utf_16_is_read_with_and_without_mark_and_binary_omitted(repo: Path) -> None:
    (repo / "NEXUS.md").write_bytes("Grüße".encode("utf-16"))
    (repo / "AGENTS.md").write_bytes(b"\xef\xbb\xbf# With a mark\r\nsecond")
    (repo / "CLAUDE.md").write_bytes("no mark".encode("utf-16-le"))
    ctx = context(repo, "instructions")
    assert own(ctx) == {
        "NEXUS.md": "# Local instructions (NEXUS.md)\n\nGrüße",
        "AGENTS.md": "# Local instructions (AGENTS.md)\n\n# With a mark\nsecond",
        "CLAUDE.md": "# Local instructions (CLAUDE.md)\n\nno mark",
    }
    assert "UTF-16 without a byte order mark" in told(ctx.warnings)["CLAUDE.md"]
    (repo / "CLAUDE.md").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    assert "not text" in told(context(repo, "instructions").warnings)["CLAUDE.md"]


@pytest.mark.usefixtures("home")
def test_very_large_file_is_truncated_and_reported(repo: Path) -> None:
    write(repo, AGENTS="All words are the same here.\n" * 180_000)
    ctx = context(repo, "instructions")
    assert len(own(ctx)["AGENTS.md"]) < 20_500
    assert "the first 4,000,000 bytes" in told(ctx.warnings)["AGENTS.md"]


@pytest.mark.usefixtures("home")
def test_unchanged_template_is_omitted_and_reported(repo: Path) -> None:
    from nexus.workspace.prompts import templates

    write(repo, AGENTS=templates()["AGENTS.md"])
    ctx = context(repo / "packages", "instructions")
    assert own(ctx) == {}
    assert "unchanged template" in told(ctx.warnings)["../AGENTS.md"]


@pytest.mark.usefixtures("home")
def test_folder_name_cannot_add_prompt_lines(tmp_path: Path) -> None:
    strange = write(tmp_path / "user" / "a\n# Rules", NEXUS="mine")
    ctx = context(write(tmp_path / "ws"), "instructions", home=strange)
    assert ctx.system_prompt.startswith("# Personal instructions (~/a # Rules/NEXUS.md)\n\nmine")


@pytest.mark.usefixtures("home")
def test_warm_call_stats_each_file_once_and_reads_none(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = (repo, repo / "packages", repo / "packages" / "app")
    for at, folder in enumerate(folders):
        write(folder, NEXUS=f"n{at}\n@part.md", AGENTS=f"a{at}", CLAUDE=f"c{at}", part=f"p{at}")
    opens: list[str] = []
    sys.addaudithook(lambda event, args: opens.append(str(args[0])) if event == "open" and watching else None)
    watching = False
    with opened(folders[-1], "instructions") as nx:
        time.sleep(0.05)  # a file that changed just now is read again in any case
        first = nx.assemble("hi", profile="mine")
        stats: list[str] = []
        real = os.stat
        monkeypatch.setattr(os, "stat", lambda path, **named: stats.append(str(path)) or real(path, **named))
        watching = True
        again = nx.assemble("hi", profile="mine")
        watching = False
        monkeypatch.undo()
    assert again.system_prompt == first.system_prompt
    assert sorted(path for path in stats if str(repo) in path and not path.endswith("policy.toml")) == sorted(
        str(folder / name) for folder in folders for name in ("NEXUS.md", "AGENTS.md", "CLAUDE.md", "part.md")
    )
    assert [path for path in opens if path.endswith(".md")] == []


@pytest.mark.usefixtures("home")
def test_changed_file_is_named_as_prefix_break(repo: Path) -> None:
    write(repo, AGENTS="One.")
    with opened(repo, "instructions") as nx:
        nx.record(nx.assemble("hi", profile="mine"), nexus.AgentResult((nexus.assistant("hello"),)))
        put(repo / "AGENTS.md", "Two, longer.")
        ctx = nx.assemble("hi", profile="mine")
    assert "Two, longer." in ctx.system_prompt
    assert ctx.accounting.prefix.state == "broken"
    assert any("AGENTS.md" in cause for cause in ctx.accounting.prefix.causes)

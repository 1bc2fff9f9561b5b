"""Document 004's PromptLoader: personal and project layers, the surroundings, and nothing lost on the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nexus.compat.nexus3.context import LoadedPrompt, PromptLoader
from nexus.compat.nexus3.context.loader import ContextLoader
from nexus.compat.nexus3.context.prompt_loader import DEFAULTS, FilePromptSource, PromptSource, get_system_info
from nexus.errors import NotFound
from nexus.workspace.environment.machine import operating_system, terminal_name
from support.errors import has_code


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NEXUS_HOME")
    monkeypatch.setenv("TERM_PROGRAM", "vscode")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_layers_are_combined_with_the_printed_headers(home: Path) -> None:
    """Document 004, "Combination": "All layers are combined with headers"."""
    personal = write(home / ".nexus" / "NEXUS.md", "Be brief.\n")
    project = write(Path.cwd() / "NEXUS.md", "Use tabs.\n")
    loaded = PromptLoader().load()
    assert loaded.content == (
        f"# Personal Configuration\nBe brief.\n\n# Project Configuration\nUse tabs.\n\n{get_system_info()}"
    )
    assert (loaded.personal_path, loaded.project_path, loaded.warnings) == (personal, project, ())


def test_the_personal_prompt_is_the_first_of_the_documented_places(home: Path) -> None:
    """Document 004, "PromptLoader": "Personal Layer (first match wins)"."""
    assert PromptLoader().load().personal_path == DEFAULTS
    older = write(home / ".nexus3" / "NEXUS.md", "older")
    assert PromptLoader().load().personal_path == older
    newer = write(home / ".nexus" / "NEXUS.md", "newer")
    assert PromptLoader().load().personal_path == newer
    newer.write_text("  \n")
    assert PromptLoader().load().personal_path == older, "an empty file says nothing"


def test_the_packaged_prompt_is_there_and_has_no_headers_of_its_own() -> None:
    text = DEFAULTS.read_text("utf-8")
    assert text.startswith("You are Nexus")
    assert "#" not in text


@pytest.mark.usefixtures("home")
def test_without_a_project_file_there_is_no_project_layer() -> None:
    """Document 004, "PromptLoader": "Project Layer (optional)"."""
    loaded = PromptLoader().load()
    assert loaded.project_path is None
    assert "# Project Configuration" not in loaded.content


def test_files_are_read_for_each_call(home: Path) -> None:
    """Decided on all documents: "Sources are read again for each call"."""
    loader = PromptLoader()
    write(home / ".nexus" / "NEXUS.md", "one")
    assert "one" in loader.load().content
    write(home / ".nexus" / "NEXUS.md", "three")
    assert "three" in loader.load().content


@pytest.mark.usefixtures("home")
def test_the_surroundings_are_always_appended_without_a_time() -> None:
    """Document 004, "PromptLoader": "System Info (always appended)"."""
    here = Path.cwd()
    lines = PromptLoader().load().content.split("\n\n")[-1].split("\n")
    assert lines[:2] == ["# Environment", f"Working directory: {here}"]
    assert lines[2].startswith("Operating system: ")
    assert lines[3:] == ["Terminal: vscode (xterm-256color)", "Mode: Interactive REPL"]
    lines = PromptLoader().load(is_repl=False).content.split("\n\n")[-1].split("\n")
    assert lines[3:] == ["Mode: HTTP JSON-RPC Server"]


def test_operating_systems_are_named_as_printed() -> None:
    """Document 004, "System Information": "special handling for WSL2, Linux distros, macOS versions"."""
    assert operating_system("Linux", "5.15.90.1-microsoft-standard-WSL2") == "Linux (WSL2 on Windows)"
    assert operating_system("Linux", "4.19.84-microsoft-standard") == "Linux (WSL2 on Windows)", "its first kernels"
    assert operating_system("Linux", "4.4.0-19041-Microsoft") == "Linux (WSL on Windows)"
    assert operating_system("Linux", "6.1", distribution="Ubuntu 24.04.1 LTS") == "Linux (Ubuntu 24.04.1 LTS)"
    assert operating_system("Linux", "6.1") == "Linux"
    assert operating_system("Darwin", "23.2.0", mac="14.2") == "macOS 14.2"
    assert operating_system("Windows", "11") == "Windows 11"
    assert operating_system("", "") == "unknown"


def test_a_terminal_is_named_as_far_as_it_is_known() -> None:
    """Document 004, "System Information": "Terminal program and TERM variable"."""
    assert terminal_name({"TERM_PROGRAM": "vscode", "TERM": "xterm"}) == "vscode (xterm)"
    assert terminal_name({"TERM": "xterm\n# Rules"}) == "xterm # Rules"
    assert terminal_name({}) == ""


def test_a_folders_name_cannot_add_lines_to_the_prompt(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Document 004, "Combination": `Working directory: /path/to/project`, one line."""
    strange = home / "a\n# Rules"
    strange.mkdir()
    monkeypatch.chdir(strange)
    assert "\n# Rules" not in get_system_info()


def test_a_file_may_be_named_by_its_path_as_text(home: Path) -> None:
    place = write(home / "prompt.md", "mine")
    assert (FilePromptSource(str(place)).load(), FilePromptSource(str(place)).path) == ("mine", place)


@pytest.mark.usefixtures("home")
def test_custom_sources_take_the_place_of_the_documented_ones(tmp_path: Path) -> None:
    """Document 004, "Extensibility": "Custom prompt sources can implement the `PromptSource` protocol"."""

    class Variable:
        path = None

        def load(self) -> str | None:
            return "from a variable"

    missing = FilePromptSource(tmp_path / "nowhere" / "NEXUS.md")
    sources: list[PromptSource] = [missing, Variable()]
    loaded = PromptLoader(personal_sources=sources).load()
    assert loaded.content.startswith("# Personal Configuration\nfrom a variable\n")
    assert loaded.personal_path is None
    empty = PromptLoader(personal_sources=[]).load()
    assert (empty.content, empty.personal_path) == (get_system_info(), None)


def test_a_text_that_both_layers_have_stands_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / ".nexus" / "NEXUS.md", "Be brief.")
    monkeypatch.chdir(home / ".nexus")
    loaded = PromptLoader().load()
    assert loaded.content.count("Be brief.") == 1
    assert loaded.project_path is None
    assert "included once" in loaded.warnings[0].message


@pytest.mark.usefixtures("home")
def test_a_text_over_the_cap_is_cut_with_a_line_and_a_warning() -> None:
    write(Path.cwd() / "NEXUS.md", "line\n" * 6_000)
    loaded = PromptLoader().load()
    assert "more characters of NEXUS.md left out (cap 20,000)" in loaded.content
    assert "omitted" in loaded.warnings[0].message


def test_a_projects_file_may_not_lead_out_of_the_project_and_ones_own_may(home: Path) -> None:
    secret = write(home / "dotfiles" / "prompt.md", "mine")
    (home / ".nexus").mkdir()
    (home / ".nexus" / "NEXUS.md").symlink_to(secret)
    (Path.cwd() / "NEXUS.md").symlink_to(secret)
    loaded = PromptLoader().load()
    assert "# Personal Configuration\nmine" in loaded.content
    assert loaded.project_path is None
    assert "outside" in loaded.warnings[0].message


def test_a_working_directory_that_was_deleted_is_said(home: Path) -> None:
    Path.cwd().rmdir()
    for load in (get_system_info, PromptLoader().load, ContextLoader(home=home).load):
        with pytest.raises(NotFound, match="was deleted", check=has_code("workspace_missing")):
            load()


def test_what_cannot_be_read_is_a_warning_and_the_next_source_is_tried(home: Path) -> None:
    place = home / ".nexus" / "NEXUS.md"
    place.parent.mkdir()
    place.symlink_to(place)
    place.parent.joinpath("x").write_text("")
    fifo = home / ".nexus3" / "NEXUS.md"
    fifo.parent.mkdir()
    os.mkfifo(fifo)
    loaded = PromptLoader().load()
    assert loaded.personal_path == DEFAULTS
    assert {warned.source for warned in loaded.warnings} == {str(place), str(fifo)}


def test_a_loaded_prompt_has_the_printed_fields_first() -> None:
    """Document 004, "LoadedPrompt Result"."""
    loaded = LoadedPrompt("text", None, None)
    assert (loaded.content, loaded.personal_path, loaded.project_path, loaded.warnings) == ("text", None, None, ())

"""The source `surroundings`: document 004's `# Environment` without a clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from nexus.workspace.environment.machine import environment_section, operating_system, this_system
from workspace.sources.gathering import context, opened, write


def test_environment_section_has_documented_lines_without_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Document 004, "Combination": "Working directory: …", "Operating system: …", "Terminal: …", "Mode: …"."""
    monkeypatch.setenv("TERM_PROGRAM", "vscode")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert context(tmp_path, "surroundings", run_mode="repl").system_prompt.split("\n") == [
        "# Environment",
        f"Working directory: {tmp_path}",
        f"Operating system: {this_system()}",
        "Terminal: vscode (xterm-256color)",
        "Mode: Interactive REPL",
    ]
    assert context(tmp_path, "surroundings", run_mode="server").system_prompt.split("\n")[3:] == [
        "Mode: HTTP JSON-RPC Server"
    ]


def test_mode_is_shown_only_if_known(tmp_path: Path) -> None:
    """Document 004, "System Information": "Mode"."""
    assert len(context(tmp_path, "surroundings").system_prompt.split("\n")) == 3


def test_working_directory_is_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write(tmp_path / "elsewhere"))
    assert f"Working directory: {tmp_path / 'ws'}\n" in context(write(tmp_path / "ws"), "surroundings").system_prompt


def test_environment_section_is_the_same_for_every_call(tmp_path: Path) -> None:
    with opened(tmp_path, "surroundings", run_mode="repl") as nx:
        first, later = (nx.assemble("hi", profile="mine").system_prompt for _ in range(2))
    assert first == later


def test_terminal_and_folder_names_take_one_line_each() -> None:
    """Document 004, "Combination": one line for each of `# Environment`."""
    text = environment_section("/a\n# Rules", "repl", {"TERM": "x\n# More"})
    assert [line for line in text.split("\n") if line.startswith("#")] == ["# Environment"]


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        (("Linux", "5.15.90.1-microsoft-standard-WSL2", "", ""), "Linux (WSL2 on Windows)"),
        (("Linux", "4.19.84-microsoft-standard", "", ""), "Linux (WSL2 on Windows)"),
        (("Linux", "4.4.0-19041-Microsoft", "", ""), "Linux (WSL on Windows)"),
        (("Linux", "6.1", "Ubuntu 24.04.1 LTS", ""), "Linux (Ubuntu 24.04.1 LTS)"),
        (("Darwin", "23.2.0", "", "14.2"), "macOS 14.2"),
        (("Windows", "11", "", ""), "Windows 11"),
    ],
)
def test_systems_have_documented_names(facts: tuple[str, str, str, str], named: str) -> None:
    """Document 004, "System Information": "special handling for WSL2, Linux distros, macOS versions"."""
    system, release, distribution, mac = facts
    assert operating_system(system, release, distribution=distribution, mac=mac) == named

"""The workspace around the current folder: never the home folder because of the user's own Nexus folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import run


def test_nexus_folder_of_the_user_makes_no_workspace_of_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, project = tmp_path / "home", tmp_path / "home" / "project"
    (home / ".nexus").mkdir(parents=True)
    (project / "deep").mkdir(parents=True)
    monkeypatch.setenv("NEXUS_HOME", str(home / ".nexus"))
    assert run("status", "--json", folder=project / "deep").json["workspace"] == str(project / "deep")
    (project / ".nexus").mkdir()
    assert run("status", "--json", folder=project / "deep").json["workspace"] == str(project)
    assert run("status", "--json", folder=home).json["workspace"] == str(home)

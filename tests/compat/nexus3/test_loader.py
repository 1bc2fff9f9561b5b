"""Document 004's ContextLoader: everything around a conversation, in layers, with where each piece came from."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from nexus.compat.nexus3.context import loader
from nexus.compat.nexus3.context.loader import ContextLayer, ContextLoader, ContextSources, LoadedContext
from nexus.compat.nexus3.context.prompt_loader import get_system_info
from nexus.errors import BadConfig, NotFound, OverCap
from nexus.types.config import Config, ImagesConfig
from support.errors import has_code


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write(tmp_path / "home" / "NEXUS.md", "Be brief.")
    write(tmp_path / "home" / "config.toml", 'model = "gpt-4o"\n')
    write(tmp_path / "home" / "mcp.json", json.dumps({"mcpServers": {"mail": {"command": "mail"}}}))
    return tmp_path / "home"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    write(tmp_path / "repo" / "AGENTS.md", "Of the repository.")
    write(tmp_path / "repo" / ".nexus" / "config.toml", "[images]\nmax_bytes = 50_000\n")
    write(tmp_path / "repo" / "app" / "NEXUS.md", "Of the app.")
    write(tmp_path / "repo" / "app" / ".nexus" / "config.toml", 'timezone = "Europe/Lisbon"\n')
    server = {"url": "https://example.com/mcp"}
    write(tmp_path / "repo" / "app" / ".nexus" / "mcp.json", json.dumps({"mcpServers": {"web": server}}))
    monkeypatch.chdir(tmp_path / "repo" / "app")
    return tmp_path / "repo" / "app"


def test_prompt_configuration_and_servers_are_merged(home: Path, here: Path) -> None:
    """Document 004, "Key Types/Classes": "Result of context loading with merged prompt, config, and MCP servers"."""
    found = ContextLoader(home=home).load()
    assert found.prompt == (
        f"# Personal instructions ({home}/NEXUS.md)\n\nBe brief.\n\n"
        "# Ancestor instructions (../AGENTS.md)\n\nOf the repository.\n\n"
        "# Local instructions (NEXUS.md)\n\nOf the app.\n\n"
        f"{get_system_info()}"
    )
    wanted = Config(images=ImagesConfig(max_bytes=50_000), model="gpt-4o", timezone="Europe/Lisbon")
    assert found.config == wanted
    assert [server.name for server in found.mcp_servers] == ["mail", "web"]
    assert found.warnings == ()
    assert ContextLoader(here, home=home).load() == found, "the working directory is the default"


@pytest.mark.usefixtures("here")
def test_the_layers_go_from_global_over_ancestors_to_local(home: Path) -> None:
    """Document 004, "Implementation Status": "Global → ancestors → local with labeled sections"."""
    layers = ContextLoader(home=home).load().layers
    assert [(layer.name, layer.path) for layer in layers] == [
        ("global", home),
        ("ancestor", Path.cwd().parent),
        ("local", Path.cwd()),
    ]
    assert [layer.prompt.partition("\n\n")[2] for layer in layers] == ["Be brief.", "Of the repository.", "Of the app."]
    assert [dict(layer.config) for layer in layers] == [
        {"model": "gpt-4o"},
        {"images.max_bytes": 50_000},
        {"timezone": "Europe/Lisbon"},
    ]
    assert [[server.name for server in layer.mcp_servers] for layer in layers] == [["mail"], [], ["web"]]


@pytest.mark.usefixtures("here")
def test_the_sources_say_where_each_piece_came_from(home: Path) -> None:
    """Document 004, "Key Types/Classes": `ContextSources` "Tracks where each piece of context came from"."""
    sources = ContextLoader(home=home).load().sources
    assert sources.prompt == (f"{home}/NEXUS.md", "../AGENTS.md", "NEXUS.md")
    assert sources.config["timezone"] == ".nexus/config.toml"
    assert sources.config["persona"] == "default"
    assert sources.mcp_servers == {"mail": f"{home}/mcp.json", "web": ".nexus/mcp.json"}


@pytest.mark.usefixtures("here")
def test_the_surroundings_follow_the_mode(home: Path) -> None:
    assert ContextLoader(home=home).load(is_repl=False).prompt.endswith("Mode: HTTP JSON-RPC Server")


def test_files_are_read_for_each_load_and_what_was_left_out_is_said(home: Path, here: Path) -> None:
    loading = ContextLoader(here, home=home)
    write(here / "NEXUS.md", "You MUST ask.\n" + "words\n" * 5_000)
    found = loading.load()
    assert "You MUST ask." in found.prompt
    assert [warned.source for warned in found.warnings] == ["NEXUS.md"]
    write(here / "NEXUS.md", "Short now.")
    assert loading.load().warnings == ()
    write(home / "config.toml", '[instructions]\ncaps = "error"\n')
    write(here / "NEXUS.md", "words\n" * 5_000)
    with pytest.raises(OverCap, match=r"NEXUS\.md too long: 29,999 characters"):
        loading.load()
    write(home / "config.toml", "[instructions]\ncaps = 1\n")
    with pytest.raises(BadConfig):
        loading.load()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFound, check=has_code("workspace_missing")):
        ContextLoader(tmp_path / "nowhere").load()


def test_package_exports_exactly_the_documented_names() -> None:
    """Document 004, "Key Types/Classes" and "Module Exports"."""
    assert loader.__all__ == ["ContextLayer", "ContextLoader", "ContextSources", "LoadedContext"]
    assert [one.name for one in fields(LoadedContext)][:4] == ["prompt", "config", "mcp_servers", "sources"]
    assert {one.name for one in fields(ContextLayer)} == {"name", "path", "prompt", "config", "mcp_servers"}
    assert [one.name for one in fields(ContextSources)] == ["prompt", "config", "mcp_servers"]


def test_hard_links_are_read_in_all_layers_where_the_user_allows_them(home: Path, here: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "elsewhere" / "rules.md", "Of elsewhere.")
    (home / "AGENTS.md").hardlink_to(other)
    for folder in (here, here.parent):
        (folder / "CLAUDE.md").hardlink_to(write(tmp_path / "elsewhere" / f"{folder.name}.md", f"In {folder.name}."))
    refused = ContextLoader(home=home).load()
    assert not any(text in refused.prompt for text in ("Of elsewhere.", "In app.", "In repo."))
    write(home / "config.toml", "[files]\nhard_links = true\n[instructions]\nnames = ['AGENTS.md', 'CLAUDE.md']\n")
    found = ContextLoader(home=home).load()
    assert all(text in found.prompt for text in ("Of elsewhere.", "In app.", "In repo."))
    assert found.warnings == ()

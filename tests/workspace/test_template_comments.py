"""Comments of the starter files are for the user: whatever is edited, none of them is sent to a model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import nexus
from nexus.assembly.profiles.builtin import PROFILES
from nexus.compat.nanobot.agent.memory import MemoryStore
from nexus.compat.nanobot.agent.skills import SkillsLoader
from nexus.compat.nexus3.context.prompt_loader import FilePromptSource
from nexus.engine import Engine
from nexus.workspace.memory.notebook import Notebook
from nexus.workspace.prompts import templates
from nexus.workspace.skills.guide import skill_guide

COMMENTS = {comment for text in templates().values() for comment in re.findall(r"<!--(.*?)-->", text, re.DOTALL)}
OWN = "<!-- the user's own comment -->"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace and the user's folder, both with every starter file edited, in each place where one may be used."""
    root, home = tmp_path / "work", tmp_path / "home"
    monkeypatch.setenv("NEXUS_HOME", str(home))
    for folder in (root, home, root / "personas" / "ada"):
        for name, text in templates().items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(f"{text}\n\n{OWN}\n\nEdited {name}.\n".replace("\n", "\r\n").encode())
    (home / "NEXUS.md").write_text(templates()["SOUL.md"] + "Edited.\n")
    return root


def comments_in(text: str) -> set[str]:
    """Return the comments of templates that a text has, whatever is around them."""
    return {comment for comment in COMMENTS if json.dumps(comment)[1:-1] in text or comment in text}


def opened(workspace: Path) -> Engine:
    return nexus.open(workspace, ledger=":memory:", timezone="UTC")


def test_no_profile_sends_comments_of_edited_templates(workspace: Path) -> None:
    Notebook(workspace).add("The user's name is Ada.")
    sent: dict[str, str] = {}
    with opened(workspace) as nx:
        for profile in PROFILES.values():
            for persona in ("", "ada"):
                ctx = nx.assemble("Hello", profile=profile.name, persona=persona, skills=("note-taking",))
                sent[f"{profile.name} {persona}"] = json.dumps([ctx.to_anthropic(), ctx.to_openai()])
    assert {name: comments_in(body) for name, body in sent.items() if comments_in(body)} == {}
    assert all(f"Edited {name}." in sent["workspace "] for name in ("AGENTS.md", "memory/MEMORY.md"))
    assert OWN in sent["workspace "]


def test_worker_is_told_no_example_of_memory_template(workspace: Path) -> None:
    Notebook(workspace).add("The release branch is cut in June.")
    with opened(workspace) as nx:
        ctx = nx.assemble(
            "Go", session="worker:w", role="worker", task="Which release branch is cut on the last Friday of the month?"
        )
    assert "cut in June" in json.dumps(ctx.to_anthropic())
    assert not comments_in(json.dumps(ctx.to_anthropic()))


def test_memory_operations_know_no_example_of_template(workspace: Path) -> None:
    book = Notebook(workspace)
    book.add("The user's name is Ada.")
    assert [match.text for match in book.search("2026-01-31")] == []
    assert not any(comments_in(fact.text) for fact in book.facts())
    book.write("# Long-term memory\n")
    assert not any(comments_in(entry.text) for entry in book.entries())


def test_skill_instructions_have_no_comment_of_template(workspace: Path) -> None:
    with opened(workspace) as nx:
        instructions = skill_guide(nx.workspace_context, "note-taking").guide
    assert "Edited skills/note-taking/SKILL.md." in instructions
    assert not comments_in(instructions)


def test_compatibility_interfaces_return_no_comment_of_template(workspace: Path) -> None:
    store, skills = MemoryStore(workspace), SkillsLoader(workspace)
    texts = [
        store.read_long_term(),
        store.get_memory_context(),
        skills.load_skill("note-taking") or "",
        FilePromptSource(workspace / "AGENTS.md").load() or "",
    ]
    assert all("Edited" in text for text in texts)
    assert not any(map(comments_in, texts))


def test_file_of_comments_alone_counts_as_empty(tmp_path: Path) -> None:
    comments = (f"<!--{comment}-->" for comment in sorted(COMMENTS))
    (tmp_path / "AGENTS.md").write_text("\n\n".join(comments))
    with opened(tmp_path) as nx:
        ctx = nx.assemble("Hello", profile="workspace")
    assert "AGENTS.md" not in [block.name for block in ctx.provenance.blocks]

"""The example that ships with the project: a session and a workspace that hold every case worth showing."""

from __future__ import annotations

import base64
import re
import shutil
import struct
import subprocess
import unicodedata
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
AGENT = EXAMPLES / "agent"
TEMPLATES = ROOT / "src" / "nexus" / "workspace" / "prompts" / "templates"
FILE_NAMES = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "memory/MEMORY.md")
SKILL_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # Agent Skills: at most 64 characters, the folder's name


class Session(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The example file: Anthropic's `system` and `messages`."""

    system: str
    messages: tuple[dict[str, Any], ...]


def session() -> Session:
    return msgspec.json.decode((EXAMPLES / "session.json").read_bytes(), type=Session)


def blocks_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def blocks(kind: str, role: str = "") -> list[dict[str, Any]]:
    chosen = [message for message in session().messages if role in ("", message["role"])]
    return [block for message in chosen for block in blocks_of(message) if block["type"] == kind]


def user_texts() -> list[str]:
    return [block["text"] for block in blocks("text", "user")]


def result_text(block: dict[str, Any]) -> str:
    content = block["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def front_matter(path: Path) -> tuple[dict[str, Any], str]:
    _, head, body = path.read_text("utf-8").split("---\n", 2)
    return yaml.safe_load(head), body


# ---------------------------------------------------------------------------------------------------- the session


def test_the_session_has_at_least_45_texts_of_users_and_three_speakers() -> None:
    assert len(user_texts()) >= 45
    assert {text.split(": ")[0] for text in user_texts()} == {"lin", "tomo", "petra"}


def test_the_session_is_too_large_for_16k_tokens_and_small_enough_to_read() -> None:
    size = (EXAMPLES / "session.json").stat().st_size
    assert 100_000 <= size <= 170_000


def test_at_least_five_messages_make_two_to_four_calls_at_once() -> None:
    batches = [sum(block["type"] == "tool_use" for block in blocks_of(message)) for message in session().messages]
    assert sum(2 <= size <= 4 for size in batches) >= 5
    assert {2, 3, 4} <= set(batches)


def test_every_call_has_its_own_id_and_every_result_answers_a_call_of_the_message_before_it() -> None:
    ids = [block["id"] for block in blocks("tool_use")]
    assert len(ids) == len(set(ids))
    asked: list[str] = []
    for message in session().messages:
        answered = [block["tool_use_id"] for block in blocks_of(message) if block["type"] == "tool_result"]
        assert answered in ([], asked)
        asked = [block["id"] for block in blocks_of(message) if block["type"] == "tool_use"]


def test_exactly_one_call_is_left_without_a_result_and_a_user_speaks_right_after_it() -> None:
    answered = {block["tool_use_id"] for block in blocks("tool_result")}
    messages = session().messages
    open_at = [
        place
        for place, message in enumerate(messages)
        for block in blocks_of(message)
        if block["type"] == "tool_use" and block["id"] not in answered
    ]
    assert len(open_at) == 1
    following = messages[open_at[0] + 1]
    assert following["role"] == "user"
    assert following["content"].startswith("lin: Stop")


def test_a_user_interrupts_in_the_message_that_carries_the_failed_result() -> None:
    kinds = [[block["type"] for block in blocks_of(message)] for message in session().messages]
    assert ["tool_result", "text"] in kinds


def test_some_results_are_errors_some_are_empty_and_one_is_very_long() -> None:
    results = blocks("tool_result")
    assert sum(block.get("is_error", False) for block in results) >= 3
    assert any(result_text(block) == "" for block in results)
    assert 7_000 <= max(len(result_text(block)) for block in results) <= 9_000
    assert any(isinstance(block["content"], list) for block in results)


def test_the_picture_is_the_png_beside_the_session_and_small() -> None:
    (image,) = blocks("image")
    data = base64.b64decode(image["source"]["data"], validate=True)
    assert image["source"]["media_type"] == "image/png"
    assert data == (EXAMPLES / "latency.png").read_bytes()
    assert len(data) < 6_000


def test_the_picture_decodes_to_its_size_with_all_of_its_colours() -> None:
    data = (EXAMPLES / "latency.png").read_bytes()
    chunks: dict[bytes, bytes] = {}
    place = 8
    while place < len(data):
        (length,) = struct.unpack_from(">I", data, place)
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        assert struct.unpack_from(">I", data, place + 8 + length)[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        place += 12 + length
    width, height = struct.unpack_from(">II", chunks[b"IHDR"])
    pixels = zlib.decompress(chunks[b"IDAT"])
    assert len(pixels) == (width + 1) * height
    assert set(pixels) == set(range(len(chunks[b"PLTE"]) // 3))


def test_thinking_carries_a_signature_and_stands_first_in_its_message() -> None:
    thoughts = blocks("thinking")
    assert 3 <= len(thoughts) <= 12
    assert all(len(base64.b64decode(block["signature"], validate=True)) >= 64 for block in thoughts)
    for message in session().messages:
        kinds = [block["type"] for block in blocks_of(message)]
        assert "thinking" not in kinds[1:]


@pytest.mark.parametrize(("name", "least"), [("CJK UNIFIED", 500), ("HIRAGANA", 300), ("KATAKANA", 50)])
def test_people_and_agent_speak_chinese_and_japanese(name: str, least: int) -> None:
    for role in ("user", "assistant"):
        text = "".join(block["text"] for block in blocks("text", role))
        found = sum(unicodedata.name(character, "").startswith(name) for character in text)
        assert found >= least // 10
    whole = "".join(block["text"] for block in blocks("text"))
    assert sum(unicodedata.name(character, "").startswith(name) for character in whole) >= least


def test_people_and_agent_use_emoji() -> None:
    for role in ("user", "assistant"):
        text = "".join(block["text"] for block in blocks("text", role))
        assert len(set(re.findall("[\U0001f300-\U0001faff]", text))) >= 5


def test_the_decision_about_the_index_is_taken_early_and_names_what_was_rejected() -> None:
    messages = session().messages
    decided = [place for place, message in enumerate(messages) if "Decision about the index" in str(message["content"])]
    assert decided
    assert decided[0] < len(messages) / 3
    decision = str(messages[decided[0] + 1]["content"])
    for word in ("GIN", "tsvector", "bigrams", "B-tree", "Trigram", "BM25"):
        assert word in decision


def test_the_session_names_no_tool_that_made_it_and_holds_no_secret() -> None:
    text = (EXAMPLES / "session.json").read_text("utf-8").lower()
    for word in ("language model", "as an ai", "anthropic", "openai", "password", "api_key", "sk-", "private key"):
        assert word not in text


# --------------------------------------------------------------------------------------------- workspace, templates


@pytest.mark.parametrize("name", FILE_NAMES)
def test_the_example_workspace_has_every_documented_file(name: str) -> None:
    text = (AGENT / name).read_text("utf-8")
    assert text.startswith("# ")
    assert "untouched template" not in text


def test_the_example_rules_say_must_and_never() -> None:
    rules = (AGENT / "AGENTS.md").read_text("utf-8")
    assert rules.count("MUST") >= 5
    assert rules.count("NEVER") >= 3


@pytest.mark.parametrize("path", sorted([*AGENT.glob("skills/*/SKILL.md"), *TEMPLATES.glob("skills/*/SKILL.md")]))
def test_every_skill_has_the_front_matter_of_the_agent_skills_format(path: Path) -> None:
    head, body = front_matter(path)
    assert head["name"] == path.parent.name
    assert SKILL_NAME.fullmatch(head["name"])
    assert len(head["name"]) <= 64
    assert 40 <= len(head["description"]) <= 1024
    assert len(body) > 200


def test_exactly_one_of_four_example_skills_is_always_active() -> None:
    skills = sorted(AGENT.glob("skills/*/SKILL.md"))
    assert len(skills) == 4
    always = [path.parent.name for path in skills if front_matter(path)[0]["metadata"].get("always") is True]
    assert always == ["citing-evidence"]


def test_remembered_facts_carry_their_dates() -> None:
    facts = [line for line in (AGENT / "memory" / "MEMORY.md").read_text("utf-8").splitlines() if line.startswith("- ")]
    assert len(facts) >= 10
    assert all(re.match(r"- 2026-\d\d-\d\d: ", fact) for fact in facts)


@pytest.mark.parametrize("name", FILE_NAMES)
def test_a_template_says_on_its_first_line_that_it_counts_as_absent_until_changed(name: str) -> None:
    text = (TEMPLATES / name).read_text("utf-8")
    assert "untouched template" in text.splitlines()[0]
    assert "absent" in text.splitlines()[0]
    assert text.count("<!--") == text.count("-->") >= 2


# ---------------------------------------------------------------------------------------------------------- the demo


def test_program_with_the_local_model_is_short_and_in_the_docs() -> None:
    program = (EXAMPLES / "local_agent.py").read_text("utf-8")
    assert len(program.splitlines()) <= 30
    assert program.split("\n\n", 1)[1] in (ROOT / "docs" / "agents.md").read_text("utf-8")


def test_demo_without_a_local_model_says_so_in_a_line_and_ends_well(tmp_path: Path) -> None:
    """Commands are replaced by programs that print nothing; `python` finds no packages."""
    for name in ("scripts", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name, code in (("nexus", 0), ("python", 1)):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\nexit {code}\n")
        program.chmod(0o755)
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    command = ["sh", str(tmp_path / "scripts" / "demo.sh")]
    done = subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line]
    assert (done.returncode, done.stderr, "local_agent.py" in done.stdout) == (0, "", False)
    assert lines[-2].startswith("No conversation with a local model:")
    assert lines[-1].startswith("The workspace is in")

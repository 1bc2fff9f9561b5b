"""The Nexus environment in the system slot: document 002, "3. Nexus Environment", to the character."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.types.block import ContextWarning
from nexus.types.environment import Capability, CapabilityState, Environment
from nexus.types.request import Event, Request
from nexus.types.settings import Settings
from nexus.workspace.environment.machine import EnvironmentSnapshot
from nexus.workspace.source_context import EngineWorkspace, SourceContext
from nexus.workspace.sources.registry import SOURCES
from nexus.workspace.sources.session_blocks import capability_lines, credentials_line, environment_text
from support.skills import SHELL

DOCUMENTED = """## Nexus Environment

You have the `nexus` CLI for skill discovery and credential management.

### Capabilities
Communication: email-read, email-send, messaging-read ✅ | chat-read, chat-send ⭐ (ready)
Social: social-x ✅ | news 🔧 (needs API key)

### Using Skills
Run `nexus skill use <name>` to get the full guide for any capability.

### Credentials
12 configured | 1 broken (twitter)"""


def of(category: str, state: CapabilityState, *names: str, needs: str = "") -> list[Capability]:
    return [Capability(name, category, state, needs) for name in names]


EXAMPLE = Environment(
    (
        *of("Social", "setup", "news", needs="needs API key"),
        *of("Communication", "active", "messaging-read", "email-send", "email-read"),
        *of("Social", "active", "social-x"),
        *of("Communication", "ready", "chat-send", "chat-read"),
    ),
    credentials=12,
    broken=("twitter",),
)


def test_environment_block_matches_document_example() -> None:
    """Document 002, "3. Nexus Environment": the printed block, without its line "[...condensed by category...]"."""
    assert environment_text(EXAMPLE) == DOCUMENTED


def test_states_are_ordered_and_grouped_by_need() -> None:
    found = Environment(
        (
            *of("A", "broken", "z", "a"),
            *of("A", "setup", "b", "d", needs="needs token"),
            *of("A", "setup", "c", needs="needs API key"),
            *of("A", "ready", "e"),
            *of("A", "active", "f"),
        )
    )
    assert capability_lines(found) == [
        "A: f ✅ | e ⭐ (ready) | c 🔧 (needs API key) | b, d 🔧 (needs token) | a, z ❌ (broken)"
    ]


def test_plain_states_are_words() -> None:
    assert capability_lines(EXAMPLE, plain=True) == [
        "Communication: email-read, email-send, messaging-read [active] | chat-read, chat-send [ready]",
        "Social: social-x [active] | news [needs API key]",
    ]


def test_empty_sections_and_blocks_are_omitted() -> None:
    assert environment_text(Environment()) == ""
    assert "Credentials" not in environment_text(Environment(tuple(of("A", "ready", "a"))))
    assert environment_text(Environment(credentials=2)).endswith("management.\n\n### Credentials\n2 configured")
    assert credentials_line(Environment(credentials=3, broken=("b", "a"))) == "3 configured | 2 broken (a, b)"


STATES: list[CapabilityState] = ["active", "ready", "setup", "broken"]
CAPABILITIES = st.lists(
    st.builds(
        Capability,
        st.from_regex(r"[a-z]{1,3}(-[a-z]{1,3})?", fullmatch=True),
        st.sampled_from(["General", "Social"]),
        st.sampled_from(STATES),
    ),
    unique_by=lambda one: (one.category, one.name),
)


@given(CAPABILITIES, st.randoms(use_true_random=False))
def test_block_text_is_independent_of_order_and_without_duplicates(found: list[Capability], dice: object) -> None:
    """Decided on 002: "categories and names are sorted"."""
    shuffled = list(found)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    lines = capability_lines(Environment(tuple(found)))
    assert lines == capability_lines(Environment(tuple(shuffled)))
    listed = [
        (line.partition(": ")[0], name)
        for line in lines
        for group in line.partition(": ")[2].split(" | ")
        for name in group.replace(" (", "(").rpartition(" ")[0].split(", ")
    ]
    assert sorted(listed) == sorted((one.category, one.name) for one in found)


def desk(
    found: Environment | None, capabilities: tuple[str, ...] | None = None, tools: tuple[dict[str, Any], ...] = SHELL
) -> SourceContext:
    request = Request(Event(), settings=Settings(capabilities=capabilities), tools=tools)
    return SourceContext(request, EngineWorkspace(), 0, "", EnvironmentSnapshot(survey=lambda _: found))


def test_environment_source_returns_one_workspace_block() -> None:
    """Document 002, "Physical Layer 1": Nexus environment (capabilities, skills summary)."""
    found = Environment(EXAMPLE.capabilities, 12, ("twitter",), 5, (ContextWarning("x", "odd"),))
    (block,), warned = SOURCES["environment"].function(desk(found))
    assert (block.layer, block.name, block.source, block.slot, block.trust) == (
        "Workspace", "environment", "nexus:environment", "system", "system"
    )  # fmt: skip
    assert block.text == DOCUMENTED
    assert warned == [ContextWarning("x", "odd")]
    assert SOURCES["environment"].function(desk(None)) == ([], [])
    assert SOURCES["environment"].function(desk(found, tools=())) == ([], [])
    assert SOURCES["environment"].function(desk(Environment())) == ([], [])


@pytest.mark.parametrize("names", [(), ("none",)])
def test_worker_toolset_without_capabilities_gets_no_block(names: tuple[str, ...]) -> None:
    assert SOURCES["environment"].function(desk(EXAMPLE, names))[0] == []


def test_worker_gets_capabilities_of_its_toolset() -> None:
    """Document 002, "MA vs WA Context Differences": Nexus environment, "Scoped to task-relevant"."""
    mail = Capability("email-read", "Communication", "ready", credentials=("mail",))
    post = Capability("social-x", "Social", "broken", credentials=("twitter",))
    found = Environment((mail, post), credentials=12, broken=("twitter",))
    (block,), _ = SOURCES["environment"].function(desk(found, ("email-read",)))
    assert "Communication: email-read ⭐ (ready)\n\n" in block.text
    assert block.text.endswith("### Credentials\n1 configured")
    assert "social-x" not in block.text
    (block,), _ = SOURCES["environment"].function(desk(found, ("social-x",)))
    assert block.text.endswith("1 configured | 1 broken (twitter)")

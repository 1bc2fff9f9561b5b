"""The bench of the peers measures what it says: same conversations for all, bodies judged and counted as defined."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmarks import conformance, peers
from benchmarks.bodies import Remembered
from benchmarks.peers import environment, synthetic
from benchmarks.peers.comparing import ask
from benchmarks.peers.course import Course, Messages, course_of, said_by_user
from benchmarks.peers.figures import Sums, figures, whole_tokens
from benchmarks.peers.job import Job, Replayed
from benchmarks.peers.judging import ORDER_OF_ROLES, anthropic_body, check_openai, openai_takes
from benchmarks.peers.registry import NEXUS, PEERS
from benchmarks.report import NotRun, machine
from benchmarks.results import NAMES

FOLDER = Path(peers.__file__).parent
CALLS = 24
CHILD = "benchmarks.peers.child"


@pytest.fixture(scope="module")
def course() -> Course:
    return course_of(synthetic.session(CALLS), Remembered())


def whole_bodies(course: Course) -> list[Messages]:
    """The never-cut messages at each call."""
    said: Messages = [{"role": "system", "content": course.system}]
    bodies: list[Messages] = []
    for exchange in course.exchanges:
        said = [*said, *exchange.event]
        bodies.append(said)
        said = [*said, *exchange.reply]
    return bodies


def sent(course: Course, bodies: Iterable[Messages | None]) -> Replayed:
    """The bodies as a peer's process would report them."""
    messages: Messages = []
    numbered: list[tuple[int, ...] | None] = []
    for body in bodies:
        for message in body or ():
            messages.extend([] if message in messages else [message])
        numbered.append(None if body is None else tuple(messages.index(message) for message in body))
    return Replayed(course.name, messages, tuple(numbered), (None,) * len(numbered), 0, {})


def test_the_synthetic_session_is_always_the_same_and_has_calls_side_by_side(course: Course) -> None:
    assert course == course_of(synthetic.session(CALLS), Remembered())
    assert any(len(exchange.event) > 1 for exchange in course.exchanges)
    assert {tool["function"]["name"] for tool in course.tools} <= {"read_file", "search", "run", "edit", "list_folder"}


def test_a_never_cut_session_is_valid_everywhere_has_everything_and_never_breaks_the_prefix(course: Course) -> None:
    found = figures(course, sent(course, whole_bodies(course)), 1, "whole request", Remembered())
    assert {found.sent, found.openai, found.anthropic, found.over, found.first, found.latest, found.event} == {CALLS}
    assert (found.breaks, found.followed, found.raised) == (0, CALLS - 1, 0)
    assert found.prompt == found.whole_prompt == sum(whole_tokens(course, Remembered()))


def test_calls_before_the_budget_is_reached_are_not_judged(course: Course) -> None:
    sizes = whole_tokens(course, Remembered())
    found = figures(course, sent(course, whole_bodies(course)), sizes[9], "whole request", Remembered())
    assert (found.sent, found.over) == (CALLS - 10, CALLS - 10)
    assert found.whole_prompt == sum(sizes)


def test_what_is_left_out_is_seen(course: Course) -> None:
    bodies = [[body[0], *body[-1:]] for body in whole_bodies(course)]
    found = figures(course, sent(course, bodies), 1, "whole request", Remembered())
    tasks = sum(bool(said_by_user(exchange.source)) for exchange in course.exchanges)
    assert (found.first, found.latest, found.openai) == (1, tasks, tasks)
    assert found.event == sum(len(exchange.event) == 1 for exchange in course.exchanges)
    assert found.breaks == CALLS - 1


def test_a_call_that_raised_an_error_has_no_body_and_no_share(course: Course) -> None:
    bodies: list[Messages | None] = [*whole_bodies(course)]
    bodies[5] = None
    found = figures(course, sent(course, bodies), 1, "whole request", Remembered())
    assert (found.raised, found.sent, found.breaks) == (1, CALLS - 1, 0)


def test_a_peers_own_budget_counts_only_what_it_says(course: Course) -> None:
    size = whole_tokens(course, Remembered())[0]
    replayed = sent(course, whole_bodies(course)[:1])
    only = Course(course.name, course.system, course.tools, course.exchanges[:1])
    over = {
        counts: figures(only, replayed, size - 1, counts, Remembered()).over_own
        for counts in ("whole request", "system and messages", "messages")
    }
    assert over == {"whole request": 1, "system and messages": 0, "messages": 0}


def test_sums_add_up_field_by_field() -> None:
    assert Sums(sent=1, prompt=2) + Sums(sent=3, breaks=4) == Sums(sent=4, prompt=2, breaks=4)


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "s"}],
        [{"role": "assistant", "content": "a"}, {"role": "user", "content": "u"}],
        [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}],
    ],
    ids=ORDER_OF_ROLES,
)
def test_an_order_of_roles_that_only_our_judge_refuses_is_not_held_against_a_peer(messages: Messages) -> None:
    body = {"model": "gpt-4o", "messages": messages}
    assert check_openai(body), "the judge no longer names this: the rule can go from ORDER_OF_ROLES"
    assert openai_takes(body)


def test_a_result_without_its_call_is_held_against_it() -> None:
    orphan = {"role": "tool", "tool_call_id": "c", "content": "r"}
    assert not openai_takes({"model": "gpt-4o", "messages": [{"role": "user", "content": "u"}, orphan]})


def test_the_anthropic_form_joins_neighbours_and_repairs_nothing() -> None:
    call: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    body = {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "r"},
            {"role": "user", "content": [{"type": "text", "text": "u"}]},
        ],
    }
    made = anthropic_body(body)
    assert made["system"] == "s"
    assert json.loads(json.dumps(made["messages"])) == [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": "r"},
                {"type": "text", "text": "u"},
            ],
        },
    ]


def test_every_peer_is_driven_by_a_class_that_exists() -> None:
    for peer in PEERS:
        module, name = peer.place.split(":")
        tree = ast.parse((FOLDER / f"{module}.py").read_text("utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}, peer.place


def test_the_requirements_are_pinned_hashed_hold_every_peer_and_name_no_host() -> None:
    text = environment.REQUIREMENTS.read_text("utf-8")
    pinned = set(re.findall(r"^([a-z0-9-]+)==\S+", text, re.MULTILINE))
    others = {peer.package for peer in PEERS} - {"nexus-context-engine"}
    assert others | {"compaction-conformance-kit", "msgspec", "toktok-rs"} <= pinned
    assert "://" not in text
    assert len(re.findall(r"^[a-z]", text, re.MULTILINE)) <= text.count("--hash=sha256:")


def test_an_environment_that_cannot_be_made_is_said_plainly() -> None:
    with pytest.raises(NotRun, match="the peers cannot be installed: no route to host"):
        environment.run([sys.executable, "-c", "import sys; sys.exit('first line\\nno route to host')"])


def test_a_peers_process_sends_the_bodies_of_all_calls_and_they_fit_the_budget(course: Course) -> None:
    budget = 8_000
    ended = ask(Path(sys.executable), CHILD, Job(NEXUS, 60, 4 << 30, budget, (course,)))
    (line,) = ended.lines
    found = figures(course, msgspec.json.decode(line, type=Replayed), budget, "whole request", Remembered())
    assert ended.stopped == ""
    assert found.sent == found.openai == found.anthropic > 0
    assert (found.over, found.raised) == (0, 0)


def test_a_peers_process_that_works_too_long_is_ended() -> None:
    ended = ask(Path(sys.executable), CHILD, Job(NEXUS, 2, 4 << 30, length=400, rounds=1_000_000))
    assert ended.stopped == "limit"


def test_a_peers_process_that_fails_is_told_from_one_that_works_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(Path(sys.executable), CHILD, Job("nobody", 60, 4 << 30, length=4, rounds=1)).stopped == "failed"
    assert "benchmarks.peers.child failed" in capsys.readouterr().err


def test_the_names_are_those_of_modules_that_run() -> None:
    assert {"peers", "conformance"} <= set(NAMES)
    assert callable(peers.run)
    assert callable(conformance.run)
    assert "nexus" in machine()

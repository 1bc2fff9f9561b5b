"""Facts proposed by rule: which sentences are facts, which are not, and that each has its source."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.interop.detect import read
from nexus.render.console import printable
from nexus.workspace.memory.proposals import propose_by_rule, replaced_facts
from workspace.memory.rows import of, rows

FACTS = {
    "rule": (
        "Always run the linter before each commit.",
        "Never push to main without asking me.",
        "From now on, never use emojis in commit messages.",
        "You must never touch the vendor folder.",
        "In this repo, tests must always run with -n 0.",
        "Whenever you change the schema, update docs/schema.md.",
        "If the tests fail, never commit.",
        "Ab jetzt immer auf Deutsch antworten.",
        "从现在起请一律用中文回答。",
    ),
    "preference": (
        "I prefer tabs over spaces.",
        "I'm a big fan of sci-fi and fantasy books.",
        "Harry Potter is my favorite book.",
        "My kids love hiking.",
        "Answer in German, please.",
        "Prefiero respuestas cortas.",
    ),
    "fact": (
        "My name is Ana Sousa.",
        "I work as a nurse.",
        "I'm allergic to peanuts.",
        "I have two kids.",
        "My time zone is Europe/Lisbon.",
        "We use PostgreSQL 16 for the event store.",
        "Our staging server is at 10.2.0.5.",
        "Ich wohne in Köln.",
        "Je m'appelle Chloé.",
        "我住在上海。",
    ),
    "decision": ("We decided to use GIN indexes for body search.", "We agreed on 80 characters per line."),
}

NO_FACTS = (
    "Please fix this.",
    "Let's commit.",
    "Should we always rebase?",
    "If I always say that I prefer tabs, would you believe me?",
    "Maybe always use tabs.",
    "I think we use Redis there.",
    "Always the same bug!",
    "This never works.",
    "I always wanted to see Rome.",
    "Whenever I'm tired, I turn to nature.",
    "Always love having fun with friends.",
    "Keep pushing yourself and never lose sight of your goals.",
    "My name is in the config file.",
    "I'm a bit tired.",
    "I'm keen on two projects in particular.",
    "I love to.",
    "I love the new design.",
    "I prefer the second option.",
    "Don't push yet.",
    "The server is down.",
    "We decided to meet tomorrow.",
    "I work on this branch.",
    "Write a poem in German.",
    "Translate this: I live in Berlin.",
    'He said "I always use vim".',
    "> I prefer emacs.",
    "```\nI prefer emacs.\n```",
    "| I prefer | emacs |",
    f"My user name is ghp_{'a1B2c3' * 6}.",
)  # fmt: skip


def texts(*messages: object) -> list[str]:
    return [one.text for one in propose_by_rule(rows(*messages), "main")]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, found in FACTS.items() for text in found])
def test_standing_statement_is_proposed_with_its_message(kind: str, text: str) -> None:
    (found,) = propose_by_rule(rows("hello", f"Thanks! {text}"), "main")
    (source,) = found.sources
    assert found.text.rstrip(".") == text.rstrip(".") and found.by == "rule"
    assert kind == found.kind or (kind, found.kind) in (("preference", "fact"), ("preference", "rule"))
    assert (source.session, source.entry, source.role) == ("main", "2.0", "user") and source.quotation in text
    assert [one.id for one in propose_by_rule(rows("hello", f"Thanks! {text}"), "main")] == [found.id]


@pytest.mark.parametrize("text", NO_FACTS)
def test_request_question_guess_and_quotation_are_not_proposed(text: str) -> None:
    assert texts(text) == []


def test_only_text_that_the_user_typed_is_read() -> None:
    pasted = "I prefer tabs.\n" + "2026-01-01 INFO started\n" * 200
    hook = of("user", "I prefer tabs.", source="hook")
    assert texts(of("assistant", "I prefer tabs."), of("system", "Never push."), of("tool", "I prefer tabs.")) == []
    assert texts(hook, pasted, "<system-reminder>I prefer tabs.</system-reminder>") == []
    assert texts(pasted[:1_000]) == ["I prefer tabs."]


def test_sentence_gives_all_its_facts_and_not_its_reasons() -> None:
    assert texts("Hi, my name is Ana Sousa and I live in Lisbon, but it's raining.") == [
        "My name is Ana Sousa.",
        "I live in Lisbon.",
    ]
    assert texts("I like tea, coffee, and milk.") == ["I like tea, coffee, and milk."]


def test_later_statement_replaces_the_earlier_one() -> None:
    assert texts("I live in Lisbon.", "Correction: I live in Porto.") == ["I live in Porto."]
    assert texts("I live in Lisbon.", "Actually, I live in Porto.") == ["I live in Porto."]
    assert texts("I prefer tabs over spaces.", "I prefer spaces over tabs.") == ["I prefer spaces over tabs."]
    assert replaced_facts("I like tea.", ["I like coffee.", "I live in Rome."]) == []


def test_repeated_statement_is_one_proposal_with_both_sources() -> None:
    (found,) = propose_by_rule(rows("I prefer tabs.", "Well, I prefer tabs!"), "main")
    assert [source.entry for source in found.sources] == ["1.0", "2.0"]


PLAIN = st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" "), max_size=60)
SENTENCES = st.sampled_from([*chain.from_iterable(FACTS.values()), *NO_FACTS, "ok", "🙂 I love 🍕.", "a" * 500])


@given(st.lists(st.lists(SENTENCES | PLAIN, max_size=4).map(" ".join), max_size=6))
def test_law_each_proposal_is_in_the_message_that_it_names(messages: list[str]) -> None:
    stored = rows(*messages)
    for found in propose_by_rule(stored, "main"):
        assert found.sources
        for source in found.sources:
            message = stored[int(source.entry.partition(".")[0]) - 1].message.text()
            line = printable(" ".join(message.replace("**", "").split()))
            assert found.text.rstrip(".")[1:].casefold() in line.casefold()


def test_real_sessions_give_no_fact_without_source(data: Path) -> None:
    for path in sorted((data / "claude_code").glob("*.jsonl")):
        messages = [message for step in next(iter(read(path))).steps for message in step.messages]
        stored = rows(*messages)
        for found in propose_by_rule(stored, path.stem):
            at = int(found.sources[0].entry.partition(".")[0]) - 1
            assert stored[at].message.role == "user" and found.text.rstrip(".") in stored[at].message.text()


@pytest.mark.parametrize(
    ("said", "proposed"),
    [
        ("I work in an attic in Utrecht and too.", ["I work in an attic in Utrecht."]),
        ("I live in Utrecht, near the.", []),
        ("Ich wohne in Utrecht und.", []),
        ("I love cheese.", []),
        ("I love cheese, but it is expensive.", []),
        ("I really like the moon!", []),
        ("My favorite character is Odysseus.", []),
        ("I hate not sleeping.", []),
        ("I love baroque music.", ["I love baroque music."]),
        ("I love sailing.", ["I love sailing."]),
    ],
)
def test_half_sentences_and_trivia_are_not_proposed(said: str, proposed: list[str]) -> None:
    assert [fact.text for fact in propose_by_rule(rows(said), "s")] == proposed


@pytest.mark.parametrize(
    "said",
    [
        "Whenever it snows, the trams run late.",
        "A bird must always have fresh water.",
        "Never trust a fox.",
        "Always be brave.",
        "Children should never swim alone.",
    ],
)
def test_statement_about_the_world_is_no_rule(said: str) -> None:
    assert propose_by_rule(rows(said), "s") == []


@pytest.mark.parametrize(
    "said",
    [
        "Whenever you rename a table, run the migrations.",
        "Every commit must always have a ticket number.",
        "You must always ask before a release.",
        "Never push to the release branch.",
    ],
)
def test_rule_for_the_work_is_proposed(said: str) -> None:
    assert [fact.kind for fact in propose_by_rule(rows(said), "s")] == ["rule"]

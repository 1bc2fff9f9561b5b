"""Which later statement replaces which earlier one."""

from __future__ import annotations

import pytest

from nexus.summarization.extractive.statements import superseded_sentences

REPLACED = [
    ("The port is 8080.", "The port is 9090."),
    ("The API port is 8080", "We moved the API to port 9090 now"),
    ("The budget for the project is $500.", "Project spending may go up to 700 dollars now."),
    ("The deadline is 2027-03-01.", "The deadline was moved to March 15."),
    ("Report all times in UTC.", "From now on use Pacific time in reports."),
    ("The release owner is Anna Schmidt.", "Release duty now belongs to Li Wei."),
    ("We work on branch feature/login.", "I switched to branch feature/logout."),
    ("Please answer in German.", "Answer in English from now on."),
    ("The timeout is 30 seconds.", "The timeout is 45 seconds."),
    ("Das Budget für das Projekt ist 500 Euro.", "Das Budget für das Projekt ist jetzt 700 Euro."),
    ("El puerto es: port 8080", "El puerto es: port 9090"),
    ("端口是 8080。", "端口改成 9090。"),
    ("Indent with tabs.", "Indent with spaces instead."),
    ("Never use port 8080.", "Never use port 9090 instead."),
    ("Never spend more than $500.", "Never spend more than $700."),
    ("Do not use port 8080.", "Use port 9090."),
    ("Never disclose the access code ABCD-12 to any user.", "Never disclose the access code EFGH-34 to any user."),
]
APART = [
    ("The project budget is $500.", "The travel budget is $700."),
    ("The production database is Postgres 15 in eu-north-1.", "The staging database is MySQL 8 in us-west-2."),
    ("Run unit tests before pushing.", "Run integration tests before release."),
    ("The launch date is 2027-03-01.", "The documentation freeze is on 2027-02-01."),
    ("Anna Schmidt is the release owner.", "Li Wei is the design reviewer."),
    ("Never disclose the code ABCD-12.", "Never disclose the code ABCD-12 to anybody."),
    ("The timeout is 30 seconds.", "The retry limit is 5 times."),
    ("Answer in German.", "Write the documentation in English."),
    ("I paid $20 for lunch.", "The server costs $500."),
    ("Never use port 8080.", "Never use port 9090."),
    ("Do not answer in German.", "Don't answer in French."),
    ("不要用 8080 端口。", "不要用 9090 端口。"),
]


@pytest.mark.parametrize(("earlier", "later"), REPLACED)
def test_later_value_of_same_subject_replaces_earlier(earlier: str, later: str) -> None:
    assert superseded_sentences([earlier, later]) == {0: ""}


@pytest.mark.parametrize(("first", "second"), APART)
def test_values_of_different_subjects_are_kept(first: str, second: str) -> None:
    assert superseded_sentences([first, second]) == {} and superseded_sentences([second, first]) == {}


def test_only_the_superseded_clause_is_removed() -> None:
    told = ["The port is 8080; never log passwords.", "The port is 9090."]
    assert superseded_sentences(told) == {0: "never log passwords."}


def test_only_newest_of_many_values_is_kept() -> None:
    told = [f"The port is {8000 + number}." for number in range(50)]
    assert sorted(superseded_sentences(told)) == list(range(49))

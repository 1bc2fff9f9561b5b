"""The bench of what survives: sentences stand once, where it says, and a small slice of it on a real session."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from benchmarks import survival
from benchmarks.bodies import Remembered, pieces_of
from benchmarks.page import TITLES
from benchmarks.planted import PLANTS
from benchmarks.planting import FIRST, PLACES, RESULT, TURN_5, TURN_20, Planted, claude_sessions, places_of, planted
from benchmarks.planting import tau_sessions as taus
from benchmarks.policies import HeadAndTail
from benchmarks.sessions import Call, Session

from nexus.types.message import Text, assistant, tool
from nexus.types.request import Event

RECORD = json.dumps({"id": 1, "city": "Lisbon"})


def texts(calls: tuple[Call, ...]) -> Iterator[str]:
    """Every text of the users' and of results, in order."""
    for call in calls:
        yield from (part.text for part in call.event.content if isinstance(part, Text))
        results = (result for message in call.event.results for result in message.results())
        yield from (item.text for result in results for item in result.content if isinstance(item, Text))


def talk(turns: int, result: str = "One line.\nAnother line.") -> Session:
    """A session whose user speaks so many times, with a call to a tool after each."""
    calls: list[Call] = []
    for turn in range(turns):
        calls.append(Call(Event((Text(f"First of {turn}. Second of {turn}."),)), (assistant("Looking."),)))
        calls.append(Call(Event(results=(tool(f"c{turn}", result),)), (assistant("Done."),)))
    return Session("talk", tuple(calls))


def test_there_are_forty_sentences_with_keys_of_their_own_in_five_languages() -> None:
    assert len(PLANTS) == len({plant.key for plant in PLANTS}) == 40
    assert all(plant.key in plant.text for plant in PLANTS)
    assert all(one.key not in other.text for one in PLANTS for other in PLANTS if one is not other)
    assert {plant.language for plant in PLANTS} == {"English", "German", "French", "Spanish", "Chinese"}


def test_each_sentence_stands_once_where_its_place_says() -> None:
    session = talk(21)
    made = planted(session, 3)
    said = list(texts(made.calls))
    assert set(made.plants) == set(PLACES)
    assert len({plant.key for plant in made.plants.values()}) == len(PLACES)
    for plant in made.plants.values():
        assert sum(text.count(plant.text) for text in said) == 1
    start, middle, end = (made.plants[place].text for place in FIRST)
    assert said[0] == f"{start}\n\nFirst of 0. {middle} Second of 0.\n\n{end}"
    assert said[2 * 4] == f"First of 4. {made.plants[TURN_5].text} Second of 4."
    assert made.plants[TURN_20].text in said[2 * 19]
    assert f"One line.\n{made.plants[RESULT].text}\nAnother line." in said[2 * 9 + 1 : 2 * 11 : 2]
    assert planted(session, 3) == made != planted(session, 4)


def test_a_record_gets_the_sentence_as_a_field_and_stays_json() -> None:
    made = planted(talk(3, RECORD), 0)
    records = [json.loads(text) for text in texts(made.calls) if text.startswith("{")]
    assert {"id": 1, "note": made.plants[RESULT].text, "city": "Lisbon"} in records


def test_sessions_of_few_turns_have_the_turns_nearest_to_a_quarter_and_three_quarters() -> None:
    assert places_of(talk(1).calls).keys() == {*FIRST}
    sites = places_of(talk(4).calls)
    assert (sites[TURN_5], sites[TURN_20]) == ((2, ""), (6, ""))


def test_what_a_client_wrote_in_the_users_name_is_no_turn() -> None:
    calls = list(talk(4).calls)
    calls[2] = Call(Event((Text("<local-command-stdout>Bye.</local-command-stdout>"),)), calls[2].reply)
    assert places_of(tuple(calls))[TURN_5] == (4, "")


@pytest.mark.parametrize(
    ("budget", "kept"), [(100, [0, 1, 2, 3, 4, 5]), (45, [0, 1, 5]), (35, [0, 1, 5]), (25, [0, 5])]
)
def test_head_and_tail_keeps_the_first_message_and_the_newest_groups(budget: int, kept: list[int]) -> None:
    roles = ("system", "user", "assistant", "user", "assistant", "user")
    messages = [{"role": role, "content": "x"} for role in roles]
    tokens = [10, 10, 10, 10, 10, 10] if budget != 45 else [10, 10, 10, 10, 20, 10]
    assert HeadAndTail().choose(messages, tokens, budget) == kept


def test_a_session_whose_last_call_was_refused_counts_as_unsent_and_in_no_share() -> None:
    session = Planted("s", (), {FIRST[0]: PLANTS[0]})
    found = survival.Sums().plus(session, survival.Sent(PLANTS[0].text, 1, 0.5)).plus(session, survival.Sent())
    assert (found.percent(*FIRST), found.percent(RESULT), found.unsent) == (100.0, None, 1)


def test_joined_conversations_have_a_turn_20_and_no_system_message(data: object) -> None:
    (session,) = taus(1)
    assert data
    assert all(site[0] > 0 for place, site in places_of(session.calls).items() if place not in FIRST)
    assert sum(bool(call.event.content) for call in session.calls) >= 20
    assert not any(text.startswith("# Airline Agent Policy") for text in texts(session.calls))


def test_on_a_real_session_the_first_turn_survives_every_budget_and_nothing_is_invalid(data: object) -> None:
    assert data
    session = next(one for one in claude_sessions() if one.name == "session_03")
    made = planted(session, 11)
    assert {RESULT, TURN_5} <= made.plants.keys()
    counter = Remembered()
    found = survival.survey([made], counter)
    assert len(found) == len(survival.SHARES) * len((*survival.NEXUS, *survival.OTHERS))
    for (share, name), sums in found.items():
        if name in survival.NEXUS:
            assert sums.percent(*FIRST) == 100, (share, name)
            assert (sums.unsent, sums.sent.refused, sums.sent.over, sums.sent.invalid) == (0, 0, 0, 0), (share, name)
        if name.startswith("LangChain"):
            assert sums.percent(*FIRST) == 0, (share, name)
    assert found[0.25, "Nexus, compaction"].percent(TURN_5, TURN_20) == 100
    shown = survival.table("t", "d", found)
    assert {len(row) for row in shown.rows} == {len(shown.columns)}
    whole = survival.never_cut(made.calls, counter)
    assert all(plant.key in "".join(pieces_of(whole[-1])) for plant in made.plants.values())


def test_the_page_has_a_title_for_it() -> None:
    assert TITLES["survival"]

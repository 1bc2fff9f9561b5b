"""200 facts in the talk of 20 sessions, long before their ends, and a question for each in other words and another order."""

from __future__ import annotations

import random
from dataclasses import dataclass

import nexus

SESSIONS = 20
FILLER_TURNS = 12
BUDGET = 3_000
"""Tokens of the sessions' calls: the facts are cut from all of them."""

SERVICES = [
    "atlas",
    "beacon",
    "cobalt",
    "delta",
    "ember",
    "falcon",
    "garnet",
    "harbor",
    "indigo",
    "juniper",
    "kestrel",
    "lantern",
    "meadow",
    "nimbus",
    "opal",
    "pepper",
    "quartz",
    "raven",
    "saffron",
    "tundra",
]
PEOPLE = [
    "Amina",
    "Bruno",
    "Chiara",
    "Dmitri",
    "Elif",
    "Farid",
    "Greta",
    "Hiro",
    "Ines",
    "Jonas",
    "Keiko",
    "Luca",
    "Mira",
    "Noor",
    "Otto",
    "Priya",
    "Quentin",
    "Rosa",
    "Sven",
    "Tomas",
]
CITIES = [
    "Antwerp",
    "Bergen",
    "Cardiff",
    "Dresden",
    "Espoo",
    "Fukuoka",
    "Ghent",
    "Hanover",
    "Izmir",
    "Jakarta",
    "Krakow",
    "Leiden",
    "Malmo",
    "Nantes",
    "Oslo",
    "Porto",
    "Quito",
    "Riga",
    "Seville",
    "Turin",
]
FOODS = [
    "almonds",
    "beans",
    "celery",
    "dates",
    "eggs",
    "figs",
    "garlic",
    "hazelnuts",
    "kiwis",
    "lupins",
    "milk",
    "nuts",
    "oats",
    "peanuts",
    "rye",
    "sesame",
    "soy",
    "tuna",
    "wheat",
    "yeast",
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]

TEMPLATES = (
    (
        "We decided that {service} is deployed only on {day}s, never before {time}.",
        "day for deploying {service}, decision",
    ),
    (
        "{person}'s train to {city} leaves at {time} from platform {number}.",
        "when do trains leave for {city} with {person}",
    ),
    ("The invoice for the {city} office has the number {code}.", "numbers of invoices, {city} offices"),
    ("{person} is allergic to {food}, so the kitchen cooks without.", "allergies of {person}"),
    ("Passwords of {service} are rotated every {number} weeks.", "{service} password rotation interval"),
    ("Customer {person} pays by bank transfer within {number} days.", "in how many days does {person} pay, transfers"),
    ("Build {code} of {service} broke the migration of the table orders.", "which build breaks migrations, {service}"),
    ("The meeting room {city} was renamed to {code}.", "renaming of meeting rooms {city}"),
    ("{service} keeps its logs for {number} days in the bucket {code}.", "bucket with logs kept by {service}"),
    ("Report {code} must be signed by {person} before {day}.", "reports that {person} signs"),
)

FILLER = (
    "I looked at the deploys, the logs and the builds again, and nothing of it has changed since the morning.",
    "The report is almost ready; the numbers in the second table still have to be checked by somebody.",
    "Could you go through the invoices and the bank transfers of the last weeks and say what is missing?",
    "The train was late, the meeting room was taken, and the kitchen had nothing left, so we moved the talk.",
    "Rotating the passwords took longer than the migration itself. Let us decide later whether that is worth it.",
)


@dataclass(frozen=True)
class PlantedFact:
    """A fact, the session that has it, and a question for it."""

    session: str
    text: str
    question: str
    answer: str
    """The word of the fact that the question asks for."""


def planted_facts() -> list[PlantedFact]:
    """Return all facts, the same in every run."""
    rng = random.Random(42)
    facts: list[PlantedFact] = []
    for number in range(SESSIONS):
        for place, (template, question) in enumerate(TEMPLATES):
            at = (number + 7 * place) % SESSIONS
            words = {
                "service": SERVICES[at],
                "person": PEOPLE[at],
                "city": CITIES[at],
                "food": FOODS[at],
                "day": rng.choice(DAYS),
                "time": f"{rng.randrange(24):02}:{rng.randrange(60):02}",
                "number": str(rng.randrange(11, 99)),
                "code": f"K{rng.randrange(10_000, 99_999)}",
            }
            text = template.format(**words)
            asked = question.format(**words)
            answer = next(words[name] for name in ("code", "food", "time", "number") if f"{{{name}}}" in template)
            facts.append(PlantedFact(f"project-{number:02}", text, asked, answer))
    return facts


def plant(nx: nexus.Engine, facts: list[PlantedFact]) -> None:
    """Store the sessions with their facts, each followed by talk that has the facts' common words."""
    rng = random.Random(7)
    for session in dict.fromkeys(fact.session for fact in facts):
        mine = [fact.text for fact in facts if fact.session == session]
        for text in ["", *mine, *("" for _ in range(FILLER_TURNS))]:
            filler = " ".join(rng.choices(FILLER, k=3))
            ctx = nx.assemble(f"{filler} {text}".strip(), session=session, budget=BUDGET)
            reply = " ".join(rng.choices(FILLER, k=6))
            nx.record(ctx, nexus.AgentResult((nexus.assistant(reply),)))

"""Shared by all tests: where the real data is, and the figures that tests print at the end of a run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants

from support.postgres import running_server

if TYPE_CHECKING:
    from torture.postgres_server import PostgresServer

# How long an example takes says nothing on a machine that does other work, so there is no deadline.
_ALWAYS = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}

# Hypothesis also draws constants of the modules imported so far, so examples would depend on the tests that ran before.
# It has no setting for this. If a later version renames the attribute, this line raises AttributeError.
pytest.MonkeyPatch().setattr(HypothesisProvider, "_local_constants", Constants())

settings.register_profile("fixed", derandomize=True, **_ALWAYS)
settings.register_profile("random", derandomize=False, print_blob=True, **_ALWAYS)
settings.load_profile("fixed")  # `make test`: the same examples in every run. `make test-all` chooses the other one

DATA = Path(os.environ.get("NEXUS_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


@pytest.fixture(scope="session", autouse=True)
def _no_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's own folder is an empty one: what lies in the home of who runs the tests must not change contexts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXUS_HOME", str(tmp_path_factory.mktemp("home")))
        for name in ("NEXUS_MODEL", "NEXUS_TIMEZONE", "NEXUS_PERSONA"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real sessions; a test that needs it fails, and says why, where it is missing."""
    assert (DATA / "tau_airline.jsonl").is_file(), (
        f"the real sessions are not in {DATA}: set NEXUS_DATA to their folder"
    )
    return DATA


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server; each test makes a ledger of its own in it."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def random_seed(pytestconfig: pytest.Config) -> int:
    """The seed of random rounds: `make test-all` gives a new one to each run and prints it."""
    return int(pytestconfig.getoption("--hypothesis-seed") or 1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the seed of a random run, and what tests counted with `record_property("figures", {...})`.

    Figures are summed over all tests and all workers.
    """
    if seed := config.getoption("--hypothesis-seed"):
        terminalreporter.section("seed")
        terminalreporter.write_line(f"{seed}  (the same examples again: make test-all SEED={seed})")
    totals: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, figures in report.user_properties:
            if name == "figures":
                totals.update(figures)
    if totals:
        terminalreporter.section("figures")
        for name in sorted(totals):
            terminalreporter.write_line(f"{totals[name]:>9,}  {name}")

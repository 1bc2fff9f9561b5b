"""Shared by all tests: where the real data is, and the figures that tests print at the end of a run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")  # how long a test takes says nothing where others run beside it

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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what tests counted with `record_property("figures", {...})`, summed over all of them and all workers."""
    totals: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, figures in report.user_properties:
            if name == "figures":
                totals.update(figures)
    if totals:
        terminalreporter.section("figures")
        for name in sorted(totals):
            terminalreporter.write_line(f"{totals[name]:>9,}  {name}")

"""Time to build the system slot of a workspace with 50 skills and 12 instruction files: warm, after a change, and cold.

The comparison reads every file and parses every front matter for each call.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

import nexus
from benchmarks.measure import Spent, middle, timed
from benchmarks.report import Outcome, Table, Target
from nexus.engine import Engine
from nexus.types.profile import Profile
from nexus.types.request import Event, Request
from nexus.workspace.environment.machine import EnvironmentSnapshot
from nexus.workspace.source_context import SourceContext
from nexus.workspace.sources.registry import SOURCES

COMMAND = "python -m benchmarks system_slot"
SKILLS, FOLDERS, NAMES = 50, 4, ("NEXUS", "AGENTS", "CLAUDE")
ROUNDS = 200
COLD_ROUNDS = 20
MOST_WARM_MS, MOST_COLD_MS = 2.0, 60.0
SLOT = Profile(
    "slot",
    "all that stands in a system slot",
    ("instructions", "soul", "identity", "permissions", "environment", "active_skills", "skills", "host", "messaging"),
    (),
)


def run() -> Outcome:
    """The medians, each kind by itself; all are of the same workspace."""
    with TemporaryDirectory() as folder:
        root = _made(Path(folder) / "home" / "repo")
        home = Path(folder) / "user"
        cold = [timed(lambda: _cold(root, home))[1] for _ in range(COLD_ROUNDS)]
        nx = _opened(root, home)
        here = _look(nx)
        text = _slot(nx, here)
        warm = [timed(lambda: _slot(nx, here))[1] for _ in range(ROUNDS)]
        changed = [_after_a_change(nx, here, root, number) for number in range(COLD_ROUNDS)]
        plain = [timed(lambda: _by_hand(root))[1] for _ in range(COLD_ROUNDS)]
        nx.close()
    rows = tuple(
        (name, one.cpu_ms, one.wall_ms)
        for name, one in (
            ("Nexus, warm", middle(warm)),
            ("Nexus, one instruction file changed", middle(changed)),
            (
                "Nexus, cold: a new engine with configuration and ledger",
                middle(cold),
            ),
            ("reading each file, parsing each front matter (PyYAML, C loader)", middle(plain)),
        )
    )
    data = f"{SKILLS} skills, {FOLDERS * len(NAMES)} instruction files in {FOLDERS} folders; {len(text):,} characters"
    notes = ("Medians, imports excluded. The environment is checked once per engine, as per session.",)
    table = Table("Time to build the system slot", COMMAND, data, ("what", "CPU ms", "wall ms"), rows, notes)
    quick, slow = middle(warm).cpu_ms, middle(cold).cpu_ms
    targets = (
        Target("system slot, warm, CPU", f"under {MOST_WARM_MS:.0f} ms", f"{quick:.2f} ms", quick < MOST_WARM_MS),
        Target("system slot, cold, CPU", f"under {MOST_COLD_MS:.0f} ms", f"{slow:.1f} ms", slow < MOST_COLD_MS),
    )
    return Outcome((table,), targets)


def _made(root: Path) -> Path:
    """A repository whose innermost folder is the workspace."""
    (root / ".git").mkdir(parents=True)
    here = root
    for depth in range(FOLDERS):
        here = root if depth == 0 else here / f"part-{depth}"
        here.mkdir(exist_ok=True)
        for name in NAMES:
            text = f"# {name} of folder {depth}\n\n" + "- You MUST say which file you mean.\n" * 60
            (here / f"{name}.md").write_text(text, "utf-8")
    (here / "SOUL.md").write_text("Calm and exact.\n", "utf-8")
    (here / "IDENTITY.md").write_text("Name: Nexus\n", "utf-8")
    for number in range(SKILLS):
        skill = here / "skills" / f"skill-{number:02}"
        skill.mkdir(parents=True)
        head = f"name: skill-{number:02}\ndescription: Does thing number {number} when it is asked for.\nlicense: MIT\n"
        head += "metadata:\n  category: Things\n  requires:\n    bins: [git]\n"
        (skill / "SKILL.md").write_text(f"---\n{head}---\n# Skill\n" + "One line of text.\n" * 200, "utf-8")
    return here


def _opened(root: Path, home: Path) -> Engine:
    return nexus.open(root, ledger=":memory:", home=home)


def _cold(root: Path, home: Path) -> str:
    with _opened(root, home) as nx:
        return _slot(nx, _look(nx))


def _look(nx: Engine) -> EnvironmentSnapshot:
    return EnvironmentSnapshot(survey=lambda _: nx.preparation.refresh_environment())


def _slot(nx: Engine, here: EnvironmentSnapshot) -> str:
    """The text of the slot, from its sources, as a call makes it."""
    desk = SourceContext(Request(Event()), nx.workspace_context, 0, "", here)
    return "\n\n".join(block.text for name in SLOT.system for block in SOURCES[name].function(desk)[0])


def _after_a_change(nx: Engine, here: EnvironmentSnapshot, root: Path, number: int) -> Spent:
    (root / "AGENTS.md").write_text(f"# Changed {number}\n", "utf-8")
    return timed(lambda: _slot(nx, here))[1]


def _by_hand(root: Path) -> str:
    """What a program writes that keeps nothing between calls."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    folders = [root, *list(root.parents)[: FOLDERS - 1]]
    texts = [(folder / f"{name}.md").read_text("utf-8") for folder in reversed(folders) for name in NAMES]
    for path in sorted((root / "skills").iterdir()):
        fields = yaml.load((path / "SKILL.md").read_text("utf-8").split("---")[1], Loader=loader)
        texts.append(f"- {fields['name']}: {fields['description']}")
    return "\n\n".join(texts)

"""The menu of document 000 for a ledger: `python scripts/database_manager.py`, or `--option 8` without the menu.

Each option is a command of `nexus`; all other arguments (`-w FOLDER`, `--ledger FILE`, `--json`) are passed to it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

OPTIONS = {
    1: ("Show statistics", "ledger stats"),
    2: ("List sessions", "sessions --all"),
    3: ("Verify the ledger", "ledger verify"),
    4: ("Find problems", "ledger doctor"),
    5: ("Free unused space", "ledger vacuum"),
    6: ("Back up the ledger", "ledger backup"),
    7: ("Show configurations", "services db show"),
    8: ("Initialize configurations", "services db init"),
}
BACKUP = 6


def main() -> int:
    """Run one option and return the exit code of its command."""
    parser = argparse.ArgumentParser(description="Menu of the commands for a ledger.")
    parser.add_argument("--option", type=int, choices=OPTIONS, help="run this option and exit")
    parser.add_argument("--file", help="file of the backup (option 6)")
    known, others = parser.parse_known_args()
    option = known.option or choose()
    if option is None:
        return 0
    words = [*OPTIONS[option][1].split(), *others]
    if option == BACKUP:
        words.append(known.file or input("File of the backup: "))
    return subprocess.run([sys.executable, "-m", "nexus", *words], check=False).returncode


def choose() -> int | None:
    """Print the menu and return the chosen option; None to exit."""
    for number, (text, words) in OPTIONS.items():
        print(f"{number}. {text} (nexus {words})")
    print("0. Exit")
    while True:
        try:
            answer = input("Option: ").strip()
        except EOFError:
            return None
        if answer in ("", "0"):
            return None
        if answer.isdecimal() and int(answer) in OPTIONS:
            return int(answer)
        print(f"Choose a number from 0 to {max(OPTIONS)}.")


if __name__ == "__main__":
    sys.exit(main())

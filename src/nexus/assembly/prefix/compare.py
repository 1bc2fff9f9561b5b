"""Does this call extend the last one? Two manifests are compared; a break names what moved.

The provider's prompt cache keeps hitting exactly while the answer is yes. A manifest holds hashes and chain values, so
the comparison does not depend on how long the history is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nexus.assembly.fit.window import Window
from nexus.context import PrefixReport
from nexus.types.history import OLDER_ENTRIES
from nexus.types.profile import ONE_TURN


def compare_manifests(before: Mapping[str, Any] | None, now: Mapping[str, Any], window: Window) -> PrefixReport:
    """The prefix report of the call with manifest `now`, whose last recorded call in the same view had `before`."""
    if before is None:
        return PrefixReport("first")
    causes = [*_moved_blocks(before, now), *_form(before, now)]
    if before.get("tools") != now["tools"]:
        causes.append("the tool definitions changed")
    if before.get("model") != now["model"]:
        causes.append(f"the model changed from {before.get('model')}")
    if before.get("config") != now["config"]:
        causes.append("the model's settings changed")
    if before.get("mark") != now["mark"]:
        causes.append("the history was compacted or cleared")
    elif before.get("cut") != now["cut"]:
        causes.extend(_cut(before, now, window))
    elif not same_pins(before, now):
        causes.append("the pinned messages among those left out changed")
    elif window.hash_at(int(before.get("head", 0))) not in (None, bytes.fromhex(before.get("head_hash", ""))):
        causes.append("the history is another one")
    elif before.get("recorded_at", 0) != int(before.get("head", 0)) + 1:
        causes.append("other turns were recorded between the last call's context and its reply")
    if before.get("supplied") and not before.get("answered", True):
        causes.append("the last call got no answer, and results that it lacked may have come since")
    if before.get("render") != now["render"]:
        causes.append("another version of Nexus renders differently")
    return PrefixReport("broken", tuple(causes)) if causes else PrefixReport("extends")


def _form(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """That a profile shows the conversation in another form than it did."""
    was, is_now = (side.get("form", "roles") for side in (before, now))
    if was != is_now:
        yield f"the conversation is shown in the form {is_now} and was in {was}"


def _cut(before: Mapping[str, Any], now: Mapping[str, Any], window: Window) -> Iterator[str]:
    """What a cut did, or that it holds no longer."""
    same = list(before.get("first", ())) == list(now["first"])
    what = "older results of tools were shortened" if same else "older messages were cut"
    reason = window.cut.reason if window.cut is not None else ""
    if now.get("form", "roles") in ONE_TURN and not reason:
        return  # what a cut left out of an earlier turn is no part of this one
    if reason == OLDER_ENTRIES:
        yield "older entries left the shared memory"
    elif reason == "old images" and same:
        yield "images of older turns became notes"
    else:
        yield f"{what} to stay within the budget"


def same_pins(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether the same groups are shown before the first message, for the same reasons."""
    kinds = list(before.get("pin_kinds", now["pin_kinds"])) == list(now["pin_kinds"])
    return kinds and [list(place) for place in before.get("pins", ())] == [list(place) for place in now["pins"]]


def _moved_blocks(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What happened to the system slot's blocks, and to those that are messages."""
    old, new = ({**side.get("blocks", {}), **side.get("ahead", {})} for side in (before, now))
    causes = [f"{origin} is gone" for origin in sorted(old.keys() - new.keys())]
    causes.extend(f"{origin} is new" for origin in sorted(new.keys() - old.keys()))
    causes.extend(f"{origin} changed" for origin in sorted(old.keys() & new.keys()) if old[origin] != new[origin])
    if not causes and before.get("system") != now["system"]:
        causes.append("the order or form of the system blocks changed")
    return causes

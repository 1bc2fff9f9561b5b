"""Comparison of two manifests: does this call extend the last one?

The provider's prompt cache hits as long as it does. A manifest holds hashes and chain values, so the comparison does not
depend on the length of the history.
"""

from __future__ import annotations

from collections.abc import Iterator

from nexus.assembly.fit.window import Window
from nexus.assembly.formats.registry import FORMATS
from nexus.assembly.manifest_store import StoredManifest
from nexus.context import Manifest, PrefixReport
from nexus.types.history import OLDER_ENTRIES


def compare_manifests(before: StoredManifest | None, now: Manifest, window: Window) -> PrefixReport:
    """Return the prefix report of a call; `before` is the manifest of the view's last recorded call."""
    if before is None:
        return PrefixReport("first")
    causes = [*_changed_blocks(before, now), *_changed_settings(before, now)]
    if before.mark != now.mark:
        causes.append("the history was compacted or cleared")
    elif before.cut != now.cut:
        causes.extend(_cut_causes(before, now, window))
    elif not same_pins(before, now):
        causes.append("the pinned messages among those left out changed")
    elif not window.has_hash(before.head, before.head_hash):
        causes.append("the history is another one")
    elif before.recorded_at != before.head + 1:
        causes.append("other turns were recorded between the last call's context and its reply")
    if before.synthetic_results and not before.answered:
        causes.append("the last call got no answer, and results that it lacked may have come since")
    if before.render != now.render:
        causes.append("another version of Nexus renders differently")
    return PrefixReport("broken", tuple(causes)) if causes else PrefixReport("extends")


def _changed_settings(before: Manifest, now: Manifest) -> Iterator[str]:
    """Yield what changed of message format, tools, model and settings."""
    if before.message_format != now.message_format:
        yield f"the conversation is shown in the form {now.message_format} and was in {before.message_format}"
    if before.tools != now.tools:
        yield "the tool definitions changed"
    if before.model != now.model:
        yield f"the model changed from {before.model}"
    if before.config != now.config:
        yield "the model's settings changed"


def same_pins(before: Manifest, now: Manifest) -> bool:
    """Return True if the same groups are shown before the first message, for the same reasons.

    Manifests of earlier versions have no kinds.
    """
    return before.pins == now.pins and (not before.pin_kinds or before.pin_kinds == now.pin_kinds)


def _cut_causes(before: Manifest, now: Manifest, window: Window) -> Iterator[str]:
    """Yield the effect of a new cut."""
    first_stays = before.first == now.first
    reason = window.cut.reason if window.cut is not None else ""
    if FORMATS[now.message_format].shows_one_turn and not reason:
        return  # a cut within an earlier turn does not affect this one
    if reason == OLDER_ENTRIES:
        yield "older entries left the shared memory"
    elif reason == "old images" and first_stays:
        yield "images of older turns became notes"
    elif first_stays:
        yield "older results of tools were shortened to stay within the budget"
    else:
        yield "older messages were cut to stay within the budget"


def _changed_blocks(before: Manifest, now: Manifest) -> list[str]:
    """Return what happened to the blocks of the system prompt and the preamble."""
    old, new = ({**manifest.blocks, **manifest.preamble_blocks} for manifest in (before, now))
    causes = [f"{source} is gone" for source in sorted(old.keys() - new.keys())]
    causes.extend(f"{source} is new" for source in sorted(new.keys() - old.keys()))
    causes.extend(f"{source} changed" for source in sorted(old.keys() & new.keys()) if old[source] != new[source])
    if not causes and before.system != now.system:
        causes.append("the order or form of the system blocks changed")
    return causes

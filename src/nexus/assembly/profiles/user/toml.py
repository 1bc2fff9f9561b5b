"""Profiles from TOML text. Every unknown key or invalid value is an error that names file, key and expected value."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from nexus.assembly.formats.registry import FORMATS
from nexus.errors import bad_profile
from nexus.types.block import LAYERS
from nexus.types.decoding import decodable
from nexus.types.profile import (
    SUMMARY_MARKERS,
    MessageFormatName,
    Profile,
    Share,
    SummaryMarker,
)
from nexus.types.validation import parse_toml
from nexus.workspace.sources.event_blocks import PREFIX, SOURCE_NAMED_BLOCKS, app_block_name

MOST_SOURCES = 100  # maximum number of sources in one slot
MOST_DESCRIPTION_CHARS = 300

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
NAME_RULE = "a name of small letters, digits, `_` and `-`, at most 64"

_PATH = re.compile(r" - at `\$\.?([^`]*)`\Z")
_UNKNOWN = re.compile(r"unknown field `(.*)`\Z", re.DOTALL)
_TYPE_NAMES = {"array": "a list", "object": "a table", "str": "text", "float": "a number", "int": "a number"}
"""Names of msgspec's types in error messages."""


class Bounds(Struct, frozen=True, forbid_unknown_fields=True):
    """The bounds of a layer's share; None is unset."""

    floor: float | None = None
    ceiling: float | None = None


class LayerShares(Struct, frozen=True, forbid_unknown_fields=True):
    """The bounds of each layer."""

    Workspace: Bounds = Bounds()
    Persona: Bounds = Bounds()
    Session: Bounds = Bounds()
    Memory: Bounds = Bounds()
    Event: Bounds = Bounds()


class ProfileTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of a profile file: a complete profile, or the changes to the profile that it extends."""

    description: str = ""
    extends: str = ""
    message_format: MessageFormatName | None = None
    summary: SummaryMarker | None = None
    session_header: bool | None = None
    freeze_system_prompt: bool | None = None
    compact_at: float | None = None
    compact_to: float | None = None
    system: tuple[str, ...] | None = None
    current: tuple[str, ...] | None = None
    preamble: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    """Sources to remove."""
    before: dict[str, str | tuple[str, ...]] = {}
    """Sources to insert, by the source that they precede. Applied after `without`."""
    after: dict[str, str | tuple[str, ...]] = {}
    """Sources to insert, by the source that they follow."""
    shares: LayerShares = LayerShares()


class ProfileDraft(ProfileTable, frozen=True):
    """A parsed profile file."""

    old_keys: dict[str, str] = {}
    """Former names of keys that the file uses, by today's name. Errors name the key that the file has."""


_OLD_KEYS = {
    "what": "description",
    "form": "message_format",
    "says_start": "session_header",
    "frozen": "freeze_system_prompt",
    "ahead": "preamble",
}
"""Former names of keys, which profile files may still use."""


@lru_cache(maxsize=64)
def parse_profile(text: str, file: str) -> ProfileDraft:
    """Parse a profile file's TOML text; `file` is its name in errors. Raises BadConfig."""
    try:
        table = parse_toml(text)
    except ValueError as error:
        raise bad_profile(file, "", f"TOML ({_shortened(str(error))})") from error
    old_keys = {new: old for old, new in _OLD_KEYS.items() if old in table and new not in table}
    for new, old in old_keys.items():
        table[new] = table.pop(old)
    try:
        draft = ProfileDraft(**asdict(msgspec.convert(table, decodable(ProfileTable))), old_keys=old_keys)
    except msgspec.ValidationError as error:
        _reject(error, file, old_keys)
    if not draft.extends and draft.system is None and draft.current is None:
        raise bad_profile(file, "", "`extends`, or the lists `system` and `current`")
    if len(draft.description) > MOST_DESCRIPTION_CHARS:
        key = old_keys.get("description", "description")
        raise bad_profile(file, key, f"at most {MOST_DESCRIPTION_CHARS} characters")
    return draft


def _shares(draft: ProfileDraft, base: Profile) -> tuple[Share, ...]:
    """Return the shares of a draft's layers; a bound that it does not name is the base's."""
    shares = {share.layer: share for share in base.shares}
    for layer in LAYERS:
        bounds: Bounds = getattr(draft.shares, layer)
        if bounds != Bounds():
            before = shares.get(layer, Share(layer))
            floor = before.floor if bounds.floor is None else bounds.floor
            ceiling = before.ceiling if bounds.ceiling is None else bounds.ceiling
            shares[layer] = Share(layer, floor, ceiling)
    return tuple(shares.values())


def build_profile(draft: ProfileDraft, name: str, base: Profile | None, sources: Collection[str], file: str) -> Profile:
    """Build a profile from a draft and the profile that it extends. `sources` are the names of all known sources.

    Raises BadConfig for a source that is unknown, missing or repeated, and for a share out of range.
    """
    base_or_empty = base or Profile(name, "", (), ())
    slots: dict[str, list[str]] = {}
    for slot in ("system", "preamble", "current"):
        names: tuple[str, ...] | None = getattr(draft, slot)
        slots[slot] = list(getattr(base_or_empty, slot) if names is None else names)
        # Checked again in the result; here, so that a huge list is one error and costs nothing more.
        _check_size(slots[slot], draft.old_keys.get(slot, slot), file)
    for source in draft.without:
        _slot_of(slots, source, file, "without").remove(source)
    for key, insertions, shift in (("before", draft.before, 0), ("after", draft.after, 1)):
        for anchor, inserted in insertions.items():
            placed = _slot_of(slots, anchor, file, key)
            index = placed.index(anchor) + shift
            placed[index:index] = (inserted,) if isinstance(inserted, str) else inserted
    profile = Profile(
        name,
        draft.description or (f"{base.name}, changed" if base else ""),
        tuple(slots["system"]),
        tuple(slots["current"]),
        _shares(draft, base_or_empty),
        tuple(slots["preamble"]),
        draft.message_format or base_or_empty.message_format,
        draft.summary or base_or_empty.summary,
        base_or_empty.session_header if draft.session_header is None else draft.session_header,
        base_or_empty.freeze_system_prompt if draft.freeze_system_prompt is None else draft.freeze_system_prompt,
        base_or_empty.compact_at if draft.compact_at is None else draft.compact_at,
        base_or_empty.compact_to if draft.compact_to is None else draft.compact_to,
    )
    validate_profile(profile, sources, file, draft.old_keys)
    return profile


def validate_profile(
    profile: Profile, sources: Collection[str], file: str, old_keys: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Check a profile's sources and shares. Raises BadConfig for an unknown or repeated source, or an invalid share."""
    slots = (("system", profile.system), ("preamble", profile.preamble), ("current", profile.current))
    first_slots: dict[str, str] = {}
    repeated = ""
    for slot, names in slots:
        key = old_keys.get(slot, slot)
        _check_size(names, key, file)
        for source in names:
            if source not in sources and not app_block_name(source):
                raise bad_profile(file, key, _expected_source(source, sources))
            if source in first_slots:
                repeated = repeated or source
            first_slots.setdefault(source, key)
    if repeated:
        raise bad_profile(file, first_slots[repeated], f"each source once; {repeated!r} is repeated")
    for share in profile.shares:
        key = f"shares.{share.layer}"
        for bound, value in (("floor", share.floor), ("ceiling", share.ceiling)):
            if not 0 <= value <= 1:
                raise bad_profile(file, f"{key}.{bound}", f"a share from 0 to 1, not {value:g}")
        if share.floor > share.ceiling:
            raise bad_profile(file, f"{key}.floor", f"no more than the ceiling, {share.ceiling:g}")
        if share.floor and share.layer != "Session":
            raise bad_profile(file, f"{key}.floor", "no floor except for the layer Session, the only one that is cut")
    _check_compaction(profile, file)
    _check_format(profile, file, old_keys)


def _check_format(profile: Profile, file: str, old_keys: Mapping[str, str]) -> None:
    name = profile.message_format
    if name not in FORMATS:
        raise bad_profile(file, old_keys.get("message_format", "message_format"), f"one of {', '.join(FORMATS)}")
    if profile.session_header and FORMATS[name].memory is not None:
        key = old_keys.get("session_header", "session_header")
        raise bad_profile(file, key, f"false with the message format {name}, which shows one turn only")


def _check_compaction(profile: Profile, file: str) -> None:
    if not 0 < profile.compact_to < profile.compact_at <= 1:
        values = f"{profile.compact_to:g} and {profile.compact_at:g}"
        raise bad_profile(file, "compact_to", f"above 0 and below compact_at, which is at most 1, not {values}")


def _check_size(names: Collection[str], key: str, file: str) -> None:
    if len(names) > MOST_SOURCES:
        raise bad_profile(file, key, f"at most {MOST_SOURCES} sources, not {len(names):,}")


def _slot_of(slots: Mapping[str, list[str]], source: str, file: str, key: str) -> list[str]:
    """Return the list that contains a source."""
    for names in slots.values():
        if source in names:
            return names
    listed = ", ".join(name for names in slots.values() for name in names) or "none"
    raise bad_profile(file, key, f"listed sources ({listed}), not {_shortened(source)!r}")


def _expected_source(source: str, sources: Collection[str]) -> str:
    """Return the expectation that an unknown source violates, with the closest known name."""
    if source.startswith(PREFIX):
        block = source.removeprefix(PREFIX)
        if block in SOURCE_NAMED_BLOCKS:
            return f"{block!r}, which is a source itself"
        return f"`{PREFIX}` and {NAME_RULE}"
    import difflib

    # Cut, because the comparison takes quadratic time.
    close = difflib.get_close_matches(source[:80], sources, 1, 0.6)
    hint = f"; did you mean {close[0]}?" if close else ""
    names = ", ".join(sorted(sources))
    return f"names of sources, not {_shortened(source)!r}{hint} (sources: {names}, and {PREFIX}NAME)"


def _reject(error: msgspec.ValidationError, file: str, old_keys: Mapping[str, str]) -> NoReturn:
    """Raise BadConfig for an unknown key or a value of the wrong type."""
    match = _PATH.search(str(error))
    path = match[1] if match else ""
    reason = _PATH.sub("", str(error))
    field = re.split(r"\W", path, maxsplit=1)[0]
    key = old_keys.get(field, field) + path[len(field) :]
    unknown = _UNKNOWN.search(reason)
    if unknown is not None:
        if not path:
            table = ProfileTable
        elif path == "shares":
            table = LayerShares
        else:
            table = Bounds
        key = f"{path}.{_shortened(unknown[1])}".removeprefix(".")
        raise bad_profile(file, key, f"one of the keys {', '.join(table.__struct_fields__)}") from error
    if reason.startswith("Invalid enum value"):
        raise bad_profile(file, key, f"one of {', '.join(SUMMARY_MARKERS)}") from error
    types: list[str] = re.findall(r"`([^`]*)`", reason)
    if types:
        expected = [_TYPE_NAMES.get(name, name) for name in types[0].split(" | ") if name != "null"]
    else:
        expected = [reason]
    actual = ""
    if len(types) > 1:
        actual = f", not {_TYPE_NAMES.get(types[1], types[1])}"
    raise bad_profile(file, key, f"{' or '.join(expected)}{actual}") from error


def _shortened(text: str) -> str:
    if len(text) <= 80:
        return text
    return f"{text[:79]}…"

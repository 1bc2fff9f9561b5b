"""A profile from its TOML text. What is not understood is an error that names file, key and what is allowed there."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import NoReturn

import msgspec
from msgspec import Struct

from nexus.errors import BadProfile
from nexus.types.block import LAYERS
from nexus.types.profile import (
    MESSAGE_FORMATS,
    ONE_TURN,
    SUMMARY_MARKERS,
    MessageFormatName,
    Profile,
    Share,
    SummaryMarker,
)
from nexus.workspace.sources.app_blocks import NAMED, PREFIX, app_block_name

MOST_SOURCES = 100
"""Sources of one slot."""

MOST_WHAT = 300
"""Characters of the line that says what a profile is for."""

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
NAME_RULE = "a name of small letters, digits, `_` and `-`, at most 64"

_PLACE = re.compile(r" - at `\$\.?([^`]*)`\Z")
_UNKNOWN = re.compile(r"unknown field `(.*)`\Z", re.DOTALL)
_KINDS = {"array": "a list", "object": "a table", "str": "text", "float": "a number", "int": "a number"}
"""Types as a file's author knows them."""


class Bounds(Struct, frozen=True, forbid_unknown_fields=True):
    """A layer's share, as far as it is given."""

    floor: float | None = None
    ceiling: float | None = None


class LayerShares(Struct, frozen=True, forbid_unknown_fields=True):
    """What is given for each layer."""

    Workspace: Bounds = Bounds()
    Persona: Bounds = Bounds()
    Session: Bounds = Bounds()
    Memory: Bounds = Bounds()
    Event: Bounds = Bounds()


class ProfileDraft(Struct, frozen=True, forbid_unknown_fields=True):
    """A profile as its file has it: its own lists, or what is otherwise than in the one that it extends.

    `without` takes sources out; then those of `before` and `after` are placed beside others that stand there.
    """

    description: str = ""
    extends: str = ""
    message_format: MessageFormatName | None = None
    summary: SummaryMarker | None = None
    session_header: bool | None = None
    freeze_system_prompt: bool | None = None
    system: tuple[str, ...] | None = None
    current: tuple[str, ...] | None = None
    preamble: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    before: dict[str, str | tuple[str, ...]] = {}
    after: dict[str, str | tuple[str, ...]] = {}
    shares: LayerShares = LayerShares()


_OLD_KEYS = {
    "what": "description",
    "form": "message_format",
    "says_start": "session_header",
    "frozen": "freeze_system_prompt",
    "ahead": "preamble",
}
"""Keys that profile files may still have, and their names today."""


@lru_cache(maxsize=64)
def parse_profile(text: str, file: str) -> ProfileDraft:
    """What a file's text says; `file` is what errors call it. Raises BadProfile."""
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadProfile(file, "", f"TOML ({_short(str(error))})") from error
    for old, new in _OLD_KEYS.items():
        if old in found and new not in found:
            found[new] = found.pop(old)
    try:
        draft = msgspec.convert(found, ProfileDraft)
    except msgspec.ValidationError as error:
        _refuse(error, file)
    if not draft.extends and draft.system is None and draft.current is None:
        raise BadProfile(file, "", "`extends`, or the lists `system` and `current`")
    if len(draft.description) > MOST_WHAT:
        raise BadProfile(file, "description", f"at most {MOST_WHAT} characters")
    return draft


def build_profile(draft: ProfileDraft, name: str, base: Profile | None, sources: Collection[str], file: str) -> Profile:
    """The profile that a draft makes of what it extends (None: nothing). Raises BadProfile."""
    slots = {
        "system": list(draft.system if draft.system is not None else base.system if base else ()),
        "ahead": list(draft.preamble if draft.preamble is not None else base.preamble if base else ()),
        "current": list(draft.current if draft.current is not None else base.current if base else ()),
    }
    for slot, names in slots.items():
        if len(names) > MOST_SOURCES:
            raise BadProfile(file, slot, f"at most {MOST_SOURCES} sources, not {len(names):,}")
    for source in draft.without:
        place = _slot(slots, source, file, "without")
        place.remove(source)
    for key, beside, shift in (("before", draft.before, 0), ("after", draft.after, 1)):
        for anchor, given in beside.items():
            place = _slot(slots, anchor, file, key)
            at = place.index(anchor) + shift
            place[at:at] = (given,) if isinstance(given, str) else given
    plain = base or Profile(name, "", (), ())
    made = Profile(
        name,
        draft.description or (f"{base.name}, changed" if base else ""),
        tuple(slots["system"]),
        tuple(slots["current"]),
        _shares(draft.shares, plain.shares),
        tuple(slots["ahead"]),
        draft.message_format or plain.message_format,
        draft.summary or plain.summary,
        plain.session_header if draft.session_header is None else draft.session_header,
        plain.freeze_system_prompt if draft.freeze_system_prompt is None else draft.freeze_system_prompt,
    )
    validate_profile(made, sources, file)
    return made


def validate_profile(profile: Profile, sources: Collection[str], file: str) -> None:
    """Raises BadProfile for sources that there are not or that stand twice, and shares out of range."""
    for slot, names in (("system", profile.system), ("ahead", profile.preamble), ("current", profile.current)):
        if len(names) > MOST_SOURCES:
            raise BadProfile(file, slot, f"at most {MOST_SOURCES} sources, not {len(names):,}")
        for source in names:
            if source not in sources and not app_block_name(source):
                raise BadProfile(file, slot, _known(source, sources))
    twice = [one for one, times in Counter((*profile.system, *profile.preamble, *profile.current)).items() if times > 1]
    if twice:
        named = (("system", profile.system), ("ahead", profile.preamble), ("current", profile.current))
        slot = next(name for name, sources_ in named if twice[0] in sources_)
        raise BadProfile(file, slot, f"each source once; {twice[0]!r} stands there more than once")
    for share in profile.shares:
        _check_share(share, file)
    if profile.session_header and profile.message_format in ONE_TURN:
        raise BadProfile(
            file,
            "session_header",
            f"false with the message format {profile.message_format}, which shows one turn alone",
        )


def _check_share(share: Share, file: str) -> None:
    key = f"shares.{share.layer}"
    for what, value in (("floor", share.floor), ("ceiling", share.ceiling)):
        if not 0 <= value <= 1:
            raise BadProfile(file, f"{key}.{what}", f"a share from 0 to 1, not {value:g}")
    if share.floor > share.ceiling:
        raise BadProfile(file, f"{key}.floor", f"no more than the ceiling, {share.ceiling:g}")
    if share.floor and share.layer != "Session":
        raise BadProfile(file, f"{key}.floor", "a floor of the layer Session alone: no other one is cut down to one")


def _slot(slots: Mapping[str, list[str]], source: str, file: str, key: str) -> list[str]:
    """The list that a source stands in."""
    for names in slots.values():
        if source in names:
            return names
    there = ", ".join([*slots["system"], *slots["ahead"], *slots["current"]]) or "none"
    raise BadProfile(file, key, f"sources that stand there ({there}); {_short(source)!r} does not")


def _shares(given: LayerShares, base: Iterable[Share]) -> tuple[Share, ...]:
    """The base's shares, with what is given in the place of the same layer's."""
    found = {share.layer: share for share in base}
    for layer in LAYERS:
        bounds: Bounds = getattr(given, layer)
        if bounds == Bounds():
            continue
        before = found.get(layer, Share(layer))
        floor = before.floor if bounds.floor is None else bounds.floor
        ceiling = before.ceiling if bounds.ceiling is None else bounds.ceiling
        found[layer] = Share(layer, floor, ceiling)
    return tuple(found.values())


def _known(source: str, sources: Collection[str]) -> str:
    """What is expected where an unknown source stands."""
    if source.startswith(PREFIX):
        own = source.removeprefix(PREFIX)
        return f"{own!r}, which is a source of its own" if own in NAMED else f"`{PREFIX}` and {NAME_RULE}"
    import difflib

    close = difflib.get_close_matches(source[:80], sources, 1, 0.6)
    near = f"; did you mean {close[0]}?" if close else ""
    return f"names of sources, not {_short(source)!r}{near} (there are {', '.join(sorted(sources))}, and {PREFIX}NAME)"


def _refuse(error: msgspec.ValidationError, file: str) -> NoReturn:
    """Raises BadProfile for what is of a wrong type, or a key that there is not."""
    place = _PLACE.search(str(error))
    where, said = place[1] if place else "", _PLACE.sub("", str(error))
    unknown = _UNKNOWN.search(said)
    if unknown is not None:
        known = ProfileDraft if not where else LayerShares if where == "shares" else Bounds
        key = f"{where}.{_short(unknown[1])}".removeprefix(".")
        raise BadProfile(file, key, f"one of the keys {', '.join(known.__struct_fields__)}") from error
    if said.startswith("Invalid enum value"):
        allowed = SUMMARY_MARKERS if where == "summary" else MESSAGE_FORMATS
        raise BadProfile(file, where, f"one of {', '.join(allowed)}") from error
    kinds: list[str] = re.findall(r"`([^`]*)`", said)
    wanted: list[str] = (
        [_KINDS.get(kind, kind) for kind in kinds[0].split(" | ") if kind != "null"] if kinds else [said]
    )
    got = f", not {_KINDS.get(kinds[1], kinds[1])}" if len(kinds) > 1 else ""
    raise BadProfile(file, where, f"{' or '.join(wanted)}{got}") from error


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"

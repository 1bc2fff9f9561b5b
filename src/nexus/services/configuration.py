"""Document 000's ConfigService: the template, the stored `configurations`, and the users' identities.

Three layers, the last one wins: the template (`config.example.yml` in this package), the operator's edits of the stored
configuration, and each user's overrides, which are the user's profile (`nexus.workspace.user_profiles`): an owner key is
the principal of the profile. `nexus services db init` stores the template; edits are stored apart from it, so a newer
template brings its new names and texts and no edit is lost.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from nexus.engine import Engine
from nexus.engine.async_engine import AsyncEngine
from nexus.engine.preparation import check_trusted
from nexus.errors import BadSetting, NotAllowed
from nexus.ledger.documents import CONFIGURATION, PROFILE, Change, change_document, hidden_threads
from nexus.services.template import TEMPLATE_FILE, Scalar, flatten, is_scalar, nested, packaged_template
from nexus.types import session_key
from nexus.types.decoding import decodable
from nexus.types.sanitize import sanitize_text
from nexus.types.user_profile import FIELDS, user_profile_text
from nexus.workspace.user_profiles import ImportedProfile, import_files, overrides_of, with_override

PROMPTS = "user_defaults.prompts"
LEGACY_PROMPTS = {"learning": "friends_profile"}
"""Older names of prompts: they are editable as the new ones are."""

STORED = "stored configuration"
"""What errors call the stored template."""

OVERRIDE_CHARS = 20_000
"""Limit of an override: it is part of every prompt of its user."""

_NAME = "default"
"""Name of the document with the configuration."""


class Setting(Struct, frozen=True):
    """A name of the configuration with its value."""

    name: str
    value: Scalar
    source: str
    """`template`, `edited`, or `user` for an override."""


class Initialization(Struct, frozen=True):
    """Result of storing a template: whether anything changed, and the names that did."""

    changed: bool
    added: tuple[str, ...]
    updated: tuple[str, ...]
    removed: tuple[str, ...]
    edited: tuple[str, ...]
    """Names that keep the operator's value."""


class ConfigService:
    """Configuration of the services and of their users.

    `get` never waits: it returns values as of the last `load`, `get_identity` or change, and the template's before.

    Args:
        nx: Engine with the ledger; its threads do the reading and writing.
    """

    def __init__(self, nx: AsyncEngine) -> None:
        self.nx = nx
        self._values = _effective({})

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a dotted name, or a dict for the beginning of several; `default` if there is none."""
        value: Any = self._values
        for part in name.split("."):
            if not isinstance(value, dict) or part not in value:
                return default
            value = cast("dict[str, Any]", value)[part]
        return copy.deepcopy(value)

    async def load(self) -> None:
        """Read the stored configuration. Raises BadConfig, LedgerError, such as LedgerUnusable."""

        def read(nx: Engine) -> dict[str, Any]:
            check_trusted(nx.ledger.store)  # the texts go to a model
            return _stored_configuration(nx)

        self._values = _effective(await self.nx.run(read, self.nx.engine))

    async def get_identity(self, owner_key: str) -> dict[str, Any]:
        """Return `owner_key` and `prompt_overrides` of a user, as `ContextBuilder` takes them; reads the configuration too.

        Raises BadSetting, BadConfig, LedgerError, such as LedgerUnusable.
        """
        principal = _principal(owner_key)

        def read(nx: Engine) -> tuple[dict[str, Any], dict[str, Any]]:
            check_trusted(nx.ledger.store)  # the texts go to a model
            with nx.ledger.snapshot():
                return _stored_configuration(nx), _read_profile(nx, principal)

        stored, profile = await self.nx.run(read, self.nx.engine)
        self._values = _effective(stored)
        others = {name: value for name, value in profile.items() if name not in FIELDS}
        return {**others, "owner_key": owner_key, "prompt_overrides": overrides_of(profile)}

    async def set_override(self, owner_key: str, name: str, value: str) -> dict[str, Any]:
        """Store a user's own text for a prompt, and return the identity. An empty text removes the override.

        Raises:
            BadSetting: The configuration has no prompt of that name, or the value is too long or not text.
            NotAllowed: The configuration does not let users change this prompt.
            BadSetting, BadConfig, LedgerError: As named.
        """
        principal = _principal(owner_key)
        text = _override_text(name, value)
        await self.load()
        self._check_editable(name)

        def change(nx: Engine) -> None:
            nx.user_profiles.change(principal, lambda profile: with_override(profile, name, text))

        await self.nx.run(change, self.nx.engine)
        return await self.get_identity(owner_key)

    async def forget(self, owner_key: str) -> bool:
        """Erase a user's profile from the storage, with its earlier versions; return whether there was one.

        Raises BadSetting, LedgerError.
        """

        def erase(nx: Engine, principal: str) -> bool:
            threads = hidden_threads(nx.ledger.store, PROFILE, principal)
            had_profile = nx.user_profiles.stored(principal) is not None
            nx.ledger.store.erase(sorted(threads), documents=[(PROFILE, principal)])
            return had_profile or bool(threads)

        return await self.nx.run(erase, self.nx.engine, _principal(owner_key))

    async def import_profiles(self, home: Path) -> list[ImportedProfile]:
        """Copy the profiles that earlier versions kept in a user's files to the ledger, which keeps those that it has.

        Raises LedgerError.
        """
        return await self.nx.run(import_files, self.nx.engine.user_profiles, home)

    async def set_default(self, name: str, value: object) -> None:
        """Store the operator's value of a dotted name, for all users. A text is converted to the type of the template.

        Raises BadSetting, BadConfig, LedgerError.
        """

        def change(document: dict[str, Any] | None) -> dict[str, Any]:
            stored = document or {}
            template = _template_of(stored)
            if name not in template:
                raise BadSetting(_unknown("setting", name, template))
            kind = type(template[name])
            try:
                converted = msgspec.convert(value, decodable(kind), strict=not isinstance(value, str))
            except msgspec.ValidationError as error:
                raise BadSetting(f"value of {name!r} has a wrong type ({error})") from error
            if not is_scalar(converted):
                raise BadSetting(f"value of {name!r} is no finite number of 64 bits")
            if isinstance(converted, str):
                converted = sanitize_text(converted)
            edits = {key: old for key, old in _mapping(stored.get("edits")).items() if key != name}
            return {**stored, "edits": {**edits, name: converted} if converted != template[name] else edits}

        self._values = _effective((await self._change(change))[0])

    async def initialize(self, template: Mapping[str, Any] | None = None) -> Initialization:
        """Store a template as the configuration, by default the packaged one. Edited values stay.

        Raises BadConfig, LedgerError.
        """
        if template is None:
            new = packaged_template()
        else:
            new = flatten(template, TEMPLATE_FILE)
        before: dict[str, Any] = {}

        def change(document: dict[str, Any] | None) -> dict[str, Any]:
            before.clear()
            before.update(document or {})
            return {"template": nested(new), "edits": _mapping(before.get("edits"))}

        stored, changed = await self._change(change)
        self._values = _effective(stored)
        old = flatten(_mapping(before.get("template")), STORED)
        return Initialization(
            changed=changed,
            added=tuple(sorted(new.keys() - old.keys())),
            updated=tuple(sorted(name for name in new.keys() & old.keys() if new[name] != old[name])),
            removed=tuple(sorted(old.keys() - new.keys())),
            edited=tuple(sorted(_edits_of(stored, new))),
        )

    async def settings(self, owner_key: str = "") -> list[Setting]:
        """Return every setting with its source, sorted by name; of a user also the overrides.

        For people: a ledger that is not trusted is read too. Raises BadSetting, BadConfig, LedgerError.
        """
        stored = await self.nx.run(_stored_configuration, self.nx.engine)
        template = _template_of(stored)
        edits = _edits_of(stored, template)
        rows = {name: Setting(name, value, "template") for name, value in template.items()}
        rows |= {name: Setting(name, value, "edited") for name, value in edits.items()}
        if owner_key:
            profile = await self.nx.run(_read_profile, self.nx.engine, _principal(owner_key))
            texts = {name: user_profile_text({FIELDS[0]: v})[0] for name, v in overrides_of(profile).items()}
            rows |= {(full := f"prompt_overrides.{name}"): Setting(full, text, "user") for name, text in texts.items()}
        return [rows[name] for name in sorted(rows)]

    async def _change(self, change: Change) -> tuple[dict[str, Any], bool]:
        return await self.nx.run(change_document, self.nx.engine.ledger.store, CONFIGURATION, _NAME, change)

    def _check_editable(self, name: str) -> None:
        prompts = _mapping(self.get(PROMPTS))
        prompt = prompts.get(LEGACY_PROMPTS.get(name, name))
        if prompt is None:
            raise BadSetting(_unknown("prompt", name, prompts))
        if not isinstance(prompt, dict) or cast("dict[str, Any]", prompt).get("editable") is not True:
            raise NotAllowed(
                f"prompt {name!r} is not editable (its operator changes it: nexus services db set-default)",
                code="not_editable",
            )


def _stored_configuration(nx: Engine) -> dict[str, Any]:
    """Return the stored template and edits; empty before the first change."""
    document = nx.ledger.store.document(CONFIGURATION, _NAME)
    if document is not None:
        return document.body
    return {}


def _read_profile(nx: Engine, principal: str) -> dict[str, Any]:
    """Return a user's profile; empty if there is none."""
    return nx.user_profiles.stored(principal) or {}


def _template_of(stored: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the template's values: the stored ones, and the package's for names that were not stored yet."""
    own = flatten(_mapping(stored.get("template")), STORED)
    groups = {name[:at] for name in own for at, char in enumerate(name) if char == "."}
    packaged = {
        name: value
        for name, value in packaged_template().items()
        if name not in groups and not any(name.startswith(f"{other}.") for other in own)
    }
    return {**packaged, **own}


def _edits_of(stored: Mapping[str, Any], template: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the edits that fit the template: a newer one may lack a name, or have another type of value."""
    edits = _mapping(stored.get("edits"))
    return {name: value for name, value in edits.items() if name in template and type(value) is type(template[name])}


def _effective(stored: Mapping[str, Any]) -> dict[str, Any]:
    template = _template_of(stored)
    return nested({**template, **_edits_of(stored, template)})


def _mapping(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {}


def _principal(owner_key: str) -> str:
    """Return the principal whose profile a user has. Raises BadSetting."""
    return session_key.key("dm", owner_key).name


def _override_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadSetting(f"value of {name!r} is no text (pass a str; an empty one removes the override)")
    if len(value) > OVERRIDE_CHARS:
        raise BadSetting(f"value of {name!r} has {len(value):,} characters, at most {OVERRIDE_CHARS:,} are allowed")
    return sanitize_text(value).strip()


def _unknown(kind: str, name: str, names: Collection[str]) -> str:
    near = get_close_matches(name[:80], names, 1, cutoff=0.5)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = f"known: {', '.join(sorted(names)) or 'none'}"
    return f"{kind} {name[:80]!r} not found ({hint})"

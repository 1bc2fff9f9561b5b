"""Names of credentials, and the variables of the environment that can hold their values.

A name has lower-case letters, digits and single hyphens, as a skill's has, so that each has a variable of its own and no
keyring or file system takes two for one.
"""

from __future__ import annotations

import re

from nexus.errors import BadCredential

PREFIX = "NEXUS_CREDENTIAL_"
MOST_CHARS = 64

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)


def is_name(text: str) -> bool:
    """Whether this can be the name of a credential."""
    return len(text) <= MOST_CHARS and _NAME.fullmatch(text) is not None


def is_variable(text: str) -> bool:
    """Whether this can be the name of a variable of the environment."""
    return _VARIABLE.fullmatch(text) is not None


def known_name(text: str) -> str:
    """The name. Raises BadCredential, which does not repeat it: it may be a value in the wrong place."""
    if not is_name(text):
        raise BadCredential(
            f"a credential's name has at most {MOST_CHARS} lower-case letters, digits and single hyphens, as in "
            "'openai-team'; this one is not shown, in case it is a value. Nothing was stored"
        )
    return text


def variable_of(name: str) -> str:
    """The variable that holds a credential's value if it is set: `NEXUS_CREDENTIAL_OPENAI_TEAM` for `openai-team`."""
    return PREFIX + _upper(name)


def name_of(variable: str) -> str | None:
    """The credential whose own variable this is, None if it is no such variable."""
    name = variable.removeprefix(PREFIX).lower().replace("_", "-")
    return name if is_name(name) and variable_of(name) == variable else None


def is_valid_for(variable: str, name: str) -> bool:
    """Whether a variable that a skill declares is this credential's: `TWITTER_API_KEY` or `TWITTER` for `twitter`."""
    return variable == _upper(name) or variable.startswith(f"{_upper(name)}_")


def _upper(name: str) -> str:
    return name.upper().replace("-", "_")

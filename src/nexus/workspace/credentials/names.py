"""Names of credentials, and of the environment variables that can contain their values.

A name has lower-case letters, digits and single hyphens, as a skill's has, so that each has a variable of its own and no
keyring or file system confuses two of them.
"""

from __future__ import annotations

import re

from nexus.errors import BadCredential

PREFIX = "NEXUS_CREDENTIAL_"
MAX_CHARS = 64

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)


def is_name(text: str) -> bool:
    """Return whether this can be the name of a credential."""
    return len(text) <= MAX_CHARS and _NAME.fullmatch(text) is not None


def is_variable(text: str) -> bool:
    """Return whether this can be the name of an environment variable."""
    return _VARIABLE.fullmatch(text) is not None


def check_name(text: str) -> str:
    """Return a valid name. Raises BadCredential, without the text: it may be a value in the wrong place."""
    if not is_name(text):
        raise BadCredential(
            f"invalid credential name, not shown because it may be a value (use at most {MAX_CHARS} lower-case letters, "
            "digits and single hyphens, as in 'openai-team'; nothing was stored)"
        )
    return text


def variable_of(name: str) -> str:
    """Return a credential's own variable: `NEXUS_CREDENTIAL_OPENAI_TEAM` for `openai-team`."""
    return PREFIX + _upper(name)


def name_of(variable: str) -> str | None:
    """Return the credential whose own variable this is, or None."""
    name = variable.removeprefix(PREFIX).lower().replace("_", "-")
    return name if is_name(name) and variable_of(name) == variable else None


def is_valid_for(variable: str, name: str) -> bool:
    """Return whether a skill's variable belongs to a credential: `TWITTER_API_KEY` or `TWITTER` for `twitter`."""
    return variable == _upper(name) or variable.startswith(f"{_upper(name)}_")


def _upper(name: str) -> str:
    return name.upper().replace("-", "_")

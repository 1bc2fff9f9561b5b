"""Secrets out of text, before a summariser or a log sees it: each becomes `[secret: kind]`.

The forms are those that the providers document for their keys. No library fits: detect-secrets reads files line by line,
brings an HTTP client and has had no release since May 2024, and the light ones also remove paths, hosts and addresses,
which a summary has to keep. A password in prose without any sign of one is not found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

_Replace: TypeAlias = Callable[[str], str]
_W = r"[A-Za-z0-9_-]"
_FORMS: tuple[tuple[str, str, str], ...] = (
    (
        "private key",
        "PRIVATE KEY",
        (
            r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:[A-Za-z0-9+/=\s\\:,.()]|-(?!--))*+(?:-----END [A-Z0-9 ]{1,60}-----)?"
        ),
    ),
    ("anthropic key", "sk-ant-", rf"(?<!\w)sk-ant-{_W}{{16,}}"),
    ("openai key", "sk-", rf"(?<![\w-])sk-(?:proj-|svcacct-|admin-|or-v1-|None-)?{_W}{{20,}}"),
    ("aws key", "A", r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("github token", "gh", r"(?<!\w)gh[pousr]_[A-Za-z0-9]{30,}"),
    ("github token", "github_pat_", r"(?<!\w)github_pat_[A-Za-z0-9_]{22,}"),
    ("gitlab token", "glpat-", rf"(?<!\w)glpat-{_W}{{18,}}"),
    ("google key", "AIza", rf"(?<!\w)AIza{_W}{{35}}"),
    ("google token", "ya29.", rf"(?<!\w)ya29\.{_W}{{20,}}"),
    ("google key", "GOCSPX-", rf"(?<!\w)GOCSPX-{_W}{{20,}}"),
    ("slack token", "xox", r"(?<!\w)xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("slack token", "xapp-", r"(?<!\w)xapp-[A-Za-z0-9-]{10,}"),
    ("slack webhook", "hooks.slack.com", r"https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{10,}"),
    ("stripe key", "_", r"(?<!\w)(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9]{16,}"),
    ("npm token", "npm_", r"(?<!\w)npm_[A-Za-z0-9]{30,}"),
    ("pypi token", "pypi-", rf"(?<!\w)pypi-AgE{_W}{{40,}}"),
    ("hugging face token", "hf_", r"(?<!\w)hf_[A-Za-z0-9]{30,}"),
    ("groq key", "gsk_", r"(?<!\w)gsk_[A-Za-z0-9]{30,}"),
    ("xai key", "xai-", r"(?<!\w)xai-[A-Za-z0-9]{30,}"),
    ("sendgrid key", "SG.", rf"(?<!\w)SG\.{_W}{{16,}}\.{_W}{{16,}}"),
    ("telegram token", ":AA", rf"(?<!\d)\d{{8,10}}:AA{_W}{{33}}"),
    ("jwt", "eyJ", rf"(?<!\w)eyJ{_W}{{8,}}\.{_W}{{8,}}(?:\.{_W}+)?"),
)
_HIDDEN_PART: tuple[tuple[str, str, str], ...] = (
    ("bearer token", "bearer", r"(?i)(?<!\w)(bearer[ \t]{1,3})((?=[^\d\s]{0,64}\d)[A-Za-z0-9_.~+/=-]{16,})"),
    (
        "basic login",
        "basic",
        r"(?i)(authorization[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?basic[ \t]{1,3})([A-Za-z0-9_+/=-]{6,})",
    ),
    ("password", "://", r"(://[^\s/:@\"'<>]{0,128}:)([^\s/@\"'<>]{1,256})(?=@)"),
    ("signature", "sig", r"(?i)([?&](?:sig|x-amz-signature|x-goog-signature)=)([^\s&#\"'<>]{8,})"),
    ("cookie", "cookie", r"(?i)((?<!\w)(?:set-)?cookie[ \t]{0,3}:[ \t]{0,3})([^\s'\"=]{1,64}=[^\r\n'\"]{4,})"),
)
_ASSIGNED = re.compile(
    r"(?i)(?<!\[)(?:passwords?|passwd|passphrase|passwort|mot de passe|contraseña|密码|密钥|口令|pwd|secret|token|api[_-]?key|access[_-]?key|account[_-]?key|"
    r"secret[_-]?key|signing[_-]?key|encryption[_-]?key|private[_-]?key|credentials?)(?P<tail>(?:[_-]?[A-Za-z0-9]{1,16}){0,2}?)"
    r"(?P<sign>[\"'`]?[ \t]{0,3}(?::=|=>|=|:|：)[ \t]{0,3}|[ \t]{1,3}(?:is|ist|es|est)[ \t]{1,3}|(?:是|为)[ \t]{0,3})"
    r"(?:(?P<quote>\\?[\"'`])(?P<quoted>[^\"'`\r\n\\]{1,256})|(?P<bare>[^\s\"'`,;<>(){}\[\]]{1,256}))"
)
_FLAG = re.compile(
    r"(?i)(?<![\w-])(--?(?:password|passwd|token|secret|api-key|access-token)[ \t]{1,3})([^\s\"'`-][^\s\"'`]{3,255})"
)
_ASSIGNED_HINTS = ("pass", "pwd", "secret", "token", "key", "credential", "contraseña", "密码", "密钥", "口令")
_NO_SECRET_NAME = re.compile(
    r"(?i)\A(?:s|ize[rd]?|izers?|ary|[_-]?(?:count|limit|length|size|type|name|file|path|url|uri|ttl|expiry|expires|field|id|"
    r"budget|usage|per|dir|manager|store|ref|policy|hash[_-]?algorithm)(?:[_-].*|s?))\Z"
)
_NO_SECRET_VALUE = re.compile(
    r"(?i)\A(?:\$|%|\*+|x{3,}\Z|\.{2,}|<|/[\w.-]+/|~/|\./|none\b|null\b|nil\b|true\b|false\b|undefined\b|required\b|"
    r"(?:str|string|int|bool|optional|any)\b|os\.|process\.|env\b|env[.(]|self\.|config[.(]|settings\.|get_?\w*\(|"
    r"your[_-]|my[_-]|example|changeme\Z|redacted|\[?secret:)"
)
_FIND = tuple((kind, hint, re.compile(form)) for kind, hint, form in _FORMS)
_FIND_PART = tuple((kind, hint, re.compile(form)) for kind, hint, form in _HIDDEN_PART)


class RedactedText(Struct, frozen=True):
    """A text without its secrets, and how many of each kind were taken out."""

    text: str
    counts: dict[str, int]


def redact(text: str) -> RedactedText:
    """The text with every secret of a known form replaced by `[secret: kind]`; redacting twice changes nothing more.

    Time is linear in the length. Covers private keys, keys and tokens of well-known services, JWTs, bearer and basic
    headers, cookies, signed links, passwords in URLs, flags and assignments (`PASSWORD=…`, `"api_key": "…"`).
    """
    counts: Counter[str] = Counter()

    def whole(kind: str) -> str:
        counts[kind] += 1
        return f"[secret: {kind}]"

    for kind, hint, form in _FIND:
        if hint in text:
            text = form.sub(lambda _, kind=kind: whole(kind), text)
    lowered = text.lower()
    for kind, hint, form in _FIND_PART:
        if hint in lowered:
            text = form.sub(lambda hit, kind=kind: _part(hit, kind, whole), text)
    if any(hint in lowered for hint in _ASSIGNED_HINTS):
        text = _ASSIGNED.sub(lambda hit: _assigned(hit, whole), text)
        text = _FLAG.sub(lambda hit: _part(hit, "password", whole), text)
    return RedactedText(text, dict(sorted(counts.items())))


def _part(hit: re.Match[str], kind: str, whole: _Replace) -> str:
    if "[secret:" in hit[2] or _NO_SECRET_VALUE.match(hit[2]):
        return hit[0]
    return hit[1] + whole(kind)


def _assigned(hit: re.Match[str], whole: _Replace) -> str:
    """The assignment without its value, or as it is where the name or the value shows that it is none."""
    value = hit["quoted"] or hit["bare"]
    if _NO_SECRET_NAME.match(hit["tail"]) or _NO_SECRET_VALUE.match(value) or len(value.strip()) < 3:
        return hit[0]
    plain = value.isalpha() or value.isspace() or (value.rstrip(".,;:!?").isalpha() and not hit["quoted"])
    if "=" not in hit["sign"] and not hit["quoted"] and plain:
        return hit[0]
    if hit["quoted"] and " " in value.strip() and "=" not in hit["sign"] and value.replace(" ", "").isalpha():
        return hit[0]
    kept = hit[0][: len(hit[0]) - len(value)]
    return kept + whole("password" if hit[0][:4].lower() in ("pass", "pwd=", "pwd:") else "credential")

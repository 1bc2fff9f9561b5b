"""Word lists for comparing what two statements are about: words that say nothing, words for one thing."""

from __future__ import annotations


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


STOP_WORDS = _words("""a an the this that these those it its is are was were be been being am do does did done have has had will would shall should
    can could may might must never always not no nor only also and or but if then than so as at by for from in into of on onto off
    out over to up with without within under below above we us our you your they their them i me my he she his her who whom which
    what when where how why all any each every some both few more most other such same own just very please thanks ok okay yes no
    now new old latest current currently previous previously anymore longer again still yet already instead rather actually
    change changed changes changing update updated updates move moved moves switch switched set sets setting put keep kept make
    makes made use used uses using show want wants wanted need needs like get gets got go going give given take taken let lets see
    user users after before first nobody else today tomorrow yesterday week weeks internally about there here quick note works work working worked lives runs running
    der die das den dem des ein eine einen einem einer ist sind war und oder aber nicht kein keine mit auf in im an am von zu zum
    zur für bei wir ihr sie er es ich jetzt nun neu bitte noch auch nur statt le la les un une des du de et ou est sont à au aux
    en pour par sur dans nous vous il elle ils ne pas plus maintenant el los las uno una y o es son del al para por con sobre
    ahora no se su sus""")
"""Words that do not say what a value is of, in English, German, French and Spanish."""

_SPEND = "budget budgets spend spending spent expense expenses cost costs price prices"
_ANSWER = "answer answers reply replies response responses respond responding"

SAME_WORD: dict[str, str] = {
    **dict.fromkeys(_words(_SPEND), "spend"),
    **dict.fromkeys(_words(_ANSWER), "answer"),
    **dict.fromkeys(("on-call", "oncall", "pager", "pagers"), "oncall"),
    **dict.fromkeys(("db", "database", "databases", "datenbank"), "database"),
    **dict.fromkeys(("prod", "production"), "production"),
    **dict.fromkeys(("dev", "development"), "development"),
    **dict.fromkeys(_words("approve approves approved approving approval approver"), "approve"),
    **dict.fromkeys(("repo", "repository"), "repository"),
    **dict.fromkeys(("config", "configuration"), "configuration"),
    **dict.fromkeys(("trip", "trips", "travel"), "trip"),
    **dict.fromkeys(("doc", "docs", "documentation"), "documentation"),
}
"""Words that name one thing."""

_NAME = "codename name named names call called calling label labelled designated refer referred known code-name alias"

KIND_WORDS: dict[str, frozenset[str]] = {
    "money": _words(
        "cap ceiling limit limits maximum max total amount exceed stay pass approval approve explicit hard low high"
    ),
    "date": _words(
        "deadline date dates due target timing schedule scheduled plan planned past fixed lands day time freeze-date"
    ),
    "zone": _words("time times timestamp timestamps timezone zone clock clocks report reports reported"),
    "port": _words("port ports listen listens listening"),
    "person": _words(
        "own owns owner owned owning belongs belong handling handles handle duty rotation shift responsible assigned"
    ),
    "branch": _words("branch branches rebase rebased checkout checked based base development"),
    "code": _words(
        f"{_NAME} disclose disclosed reveal revealed share shared user users rotated rotation circumstances safe word"
    ),
    "hash": _words("commit commits base based branched branch work head"),
    "progress": _words("progress phase step stage part steps done"),
    "code language": _words("code example examples snippet snippets language languages write"),
    "tone": _words("style tone voice answer"),
    "length": _words("style answer length"),
    "units": _words("units unit measurements measurement stick"),
    "language": _words("language languages write speak text"),
    "number": _words("number value equal equals"),
    "place": _words("url base address host lives"),
}
"""Words that come with a kind of value and do not say what it is of."""

"""Patterns and word lists of extractive summarization."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "constraint", "preference", "fact", "decision", "done", "open", "file", "command", "identifier", "error", "recent"
]


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


MOST_CHARS = 160

_FORMS: tuple[tuple[str, int, str], ...] = (
    ("url", 60, r"https?://[^\s<>\"'`)\]}|\\，。；]{4,300}"),
    ("email", 60, r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}"),
    ("uuid", 55, r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"),
    ("path", 50, r"(?<![\w/.-])(?:~|\.{1,2})?/?(?:[\w.@+-]{1,80}/){1,12}[\w.@+-]{0,80}[\w]"),
    (
        "path",
        45,
        (
            r"(?<![\w/.-])[\w-]{1,60}(?:\.[\w-]{1,30}){0,2}\.(?:py|pyi|js|mjs|ts|tsx|jsx|go|rs|java|kt|rb|php|c|h|cc|cpp|hpp|cs|"
            r"swift|md|rst|txt|json|jsonl|ya?ml|toml|ini|cfg|conf|env|sh|sql|db|sqlite|csv|tsv|xml|html?|css|scss|lock|log|ipynb|pdf|png)\b"
        ),
    ),
    ("hash", 50, r"\b(?=[0-9a-f]{0,39}\d)(?=[0-9a-f]{0,39}[a-f])[0-9a-f]{7,64}\b"),
    ("ticket", 55, r"\b[A-Z][A-Z0-9]{1,9}-\d{1,8}\b|(?<![\w&#])#\d{1,7}\b|\b[\w.-]{1,40}/[\w.-]{1,60}#\d{1,7}\b"),
    ("code", 50, r"\b(?=[A-Z0-9]{0,11}[A-Z])(?=[A-Z0-9]{0,11}\d)[A-Z0-9]{5,12}\b"),
    ("error", 45, r"\b(?:[A-Z][a-zA-Z]{2,40}(?:Error|Exception)|E[A-Z]{4,14}|[A-Z]{2,4}\d{3,5}|HTTP [45]\d\d)\b"),
    (
        "host",
        50,
        (
            r"\b(?:localhost|(?:\d{1,3}\.){3}\d{1,3}|[a-z0-9][\w-]{0,62}(?:\.[a-z][\w-]{1,62}){1,4})(?::\d{2,5})\b|"
            r"\b(?:\d{1,3}\.){3}\d{1,3}\b|\b[a-z0-9][\w-]{0,62}\.(?:internal|local|com|org|net|io|dev|ai)\b"
        ),
    ),
    ("port", 50, r"\b[Pp]ort \d{2,5}\b"),
    ("version", 40, r"\bv?\d{1,4}\.\d{1,4}\.\d{1,6}(?:[-+.]?[0-9A-Za-z.]{1,20})?\b|\bv\d{1,4}(?:\.\d{1,4})?\b"),
    (
        "amount",
        40,
        r"[$€£¥]\s?\d[\d,.]{0,14}\d?(?:\s?[kKmM]\b)?|\b\d[\d,.]{0,14}\s?(?:USD|EUR|GBP|CHF|JPY|CNY|dollars?|euros?|元)",
    ),
    ("amount", 30, r"\b\d[\d,.]{0,12}\s?(?:[KMGT]i?B|ms|kg|km|px|%)(?!\w)"),
    ("env", 45, r"\b[A-Z][A-Z0-9]{1,30}_[A-Z0-9_]{1,60}\b"),
    ("name", 35, r"(?<!`)`([^`\s][^`\n]{0,78})`(?!`)"),
    ("date", 30, r"\b\d{4}-\d{2}-\d{2}\b"),
)
_FIND = tuple((kind, weight, re.compile(form)) for kind, weight, form in _FORMS)


def find_identifiers(text: str) -> Iterator[tuple[str, str, int]]:
    """Every identifier in the text with its kind and weight, by kind; what lies inside a longer one is not repeated."""
    taken: list[tuple[int, int]] = []
    for kind, weight, form in _FIND:
        found: list[tuple[int, int]] = []
        for hit in form.finditer(text):
            start, end = hit.span(1) if hit.lastindex else hit.span()
            name = text[start:end].rstrip(".,;:!?'\"")
            if not name or len(name) > MOST_CHARS or _inside(taken, start, end):
                continue
            if (kind == "path" and not _is_path(name)) or (kind == "name" and name.isalpha() and name.islower()):
                continue
            found.append((start, end))
            yield name, kind, weight
        taken = sorted([*taken, *found])


def _inside(taken: list[tuple[int, int]], start: int, end: int) -> bool:
    """Whether a span overlaps one of the spans, which are sorted and do not overlap each other."""
    low, high = 0, len(taken)
    while low < high:
        middle = (low + high) // 2
        if taken[middle][1] <= start:
            low = middle + 1
        else:
            high = middle
    return low < len(taken) and taken[low][0] < end


def _is_path(name: str) -> bool:
    """Whether it is a path and not two words with a slash (`and/or`, `10/12`)."""
    if name.startswith(("/", "~", ".")) or name.count("/") > 1 or "/" not in name:
        return any(letter.isalpha() for letter in name)
    return any(letter in "._-" or letter.isdigit() for letter in name) and any(letter.isalpha() for letter in name)


def _any(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


_MUST = _any(
    r"\b(?:must(?!['’]ve|-have| have been)(?:n['’]t)?|never|always|shall not|may not|at most|at least|no (?:more|less|fewer|later) than|not exceed|"
    r"under no circumstances|mandatory|forbidden|prohibited|not allowed|strictly|off[- ]limits|from now on|stick to|"
    r"without (?:\w+ )?(?:asking|approval|permission|consent|confirmation)|make sure|be sure to|ensure that)\b",
    r"(?:^|[,;:.!—–(] ?|\b(?:and|but|please|so|also|then|just|you|we|should) )(?:do not|don['’]t|dont|please avoid|stop) (?!know|think|have|understand|see|worry|mind|want to|believe|care|remember)\w",
    r"\b(?:only (?:use|run|touch|edit|change|write|read|work|commit|answer|reply|push|deploy|in|with|from|via|when|if|after|on)|"
    r"(?:use|run|touch|edit|change|write|read|answer|reply|push|allow(?:ed)?|limited to) only)\b",
    r"^(?:only|no|avoid|keep|ensure|limit|leave) \w",
    r"^if .{3,160}\b(?:stop|ask|tell|escalate|warn|abort|refuse|do not|don['’]t)\b",
    r"\b(?:run|use|report|put|show|send|check|ask) .{2,80}\b(?:before|prior to|until|first)\b",
    r"\b(?:niemals|nie|immer|muss|müssen|musst|auf keinen fall|höchstens|mindestens|maximal|unbedingt|verboten|ab jetzt|"
    r"darf(?:st)? (?:nicht|nur|kein\w*)|bitte (?:nicht|nur|immer|keine?n?)|nur (?:mit|in|auf|noch|über)|keinesfalls)\b",
    r"\b(?:keine?n?|nicht) (?:\w+ ){0,3}(?:verwenden|benutzen|nutzen|ändern|löschen|anfassen|committen|pushen|vergessen)\b",
    r"\b(?:jamais|toujours|doit|doivent|il faut|interdit\w*|uniquement|obligatoire\w*|surtout pas|au (?:plus|moins|maximum)|"
    r"désormais|évite[rz]?)\b",
    r"\b(?:ne |n['’])\w+ (?:\w+ )?(?:pas|jamais|que)\b",
    r"\b(?:nunca|siempre|debes?|deben|no (?:uses|toques|cambies|borres|modifiques|hagas|envíes|puede\w*|debe\w*)|tienes? que|"
    r"hay que|prohibido|únicamente|solamente|sólo|como máximo|al menos|obligatori\w+|a partir de ahora|evita)\b",
    r"必须|必需|不要|不能|不得|不可|禁止|务必|切勿|请勿|千万|永远|始终|总是|一律|只能|只用|只使用|仅限|最多|至少|不超过|一定要|从现在起",
)
_PREFER = _any(
    r"\bi (?:do not|don['’]t) want\b|\b(?:prefer(?:s|red|ence|ably)?|i(?:['’]d| would) rather|would rather|favou?rite|(?:the )?user (?:wants?|likes?)|"
    r"i (?:really )?(?:like|love|hate|dislike)|allergic)\b",
    r"\b(?:please|always) (?:answer|reply|respond|use|keep|format|speak|call me)\b",
    r"^(?:answer|reply|respond|write|speak|use|keep) (?:\w+ ){0,4}(?:in|short|brief|concise|terse|simple|with)\b",
    r"\b(?:bevorzug\w+|lieber|am liebsten|ich mag|je préfère|préfér\w+|j['’]aime|prefiero|me gusta|preferencia)\b",
    r"偏好|喜欢|更愿意|希望你|请用|宁愿",
)
_REMEMBER = _any(
    r"(?<!n't )(?<!n’t )(?<!not )\b(?:remember|keep in mind|note that|for the record|fyi|take note|don['’]t forget|important(?: that| to|:))",
    r"\b(?:merke?n? (?:dir|sie)|denk daran|vergiss nicht|beachte|wichtig|n['’]oublie[rz]?|rappelle|retiens|recuerda|no olvides|"
    r"ten en cuenta)\b",
    r"记住|记得|请注意|别忘了|不要忘",
)
_DECISION = _any(
    r"\b(?:(?:have |['’]ve |was |were )?decided (?:to|on|that|against|for)|(?:the |our |final )decision|we(?:['’]ll| will| shall) |"
    r"let['’]?s (?:use|go|keep|do|stick|drop|skip|switch|make|take|not|start with)|go(?:ing)? with|settled on|opt(?:ed)? for|"
    r"chose|chosen|picked|agreed (?:to|on|that)|switch(?:ed|ing)? (?:\w+ ){0,3}to|instead of|approved|we(?:['’]re| are) (?:using|calling)|"
    r"the plan is|rebased onto|moved to|rotated)\b",
    r"\b(?:entschieden|entscheidung|beschlossen|lass uns|wir (?:nehmen|verwenden|nutzen|werden|bleiben)|stattdessen|anstatt|statt)\b",
    r"\b(?:décidé|décision|nous allons|on va utiliser|choisi|utilisons|plutôt que|au lieu de|retenu)\b",
    r"\b(?:decidi\w+|decisión|vamos a usar|usaremos|elegi\w+|elegido|en lugar de|en vez de|acordamos)\b",
    r"决定|我们(?:将|用|采用|选)|选择了|选定|改用|改为|采用|而不是",
)
_OPEN = _any(
    r"^\s*[-*+] \[ \]|\btodos?\b:?|\btbd\b|\bfixme\b",
    r"\b(?:next (?:step|task|up)|remaining (?:work|task|step|item)s?|still (?:need|have to|open|missing|failing|to do)|pending|"
    r"open (?:question|task|item|point)s?|not (?:yet|done)|follow[- ]?up|blocked (?:by|on)|awaiting|waiting (?:for|on)|unfinished|"
    r"current (?:task|work)|in progress|are failing|is failing|(?:remains?|left|needs?|has|have) to be (?:done|fixed|written|added))\b",
    r"\b(?:nächste[rsn]? schritt|als nächstes|noch (?:nicht|offen|zu)|steht noch aus|ausstehend|offene? (?:frage|punkt|aufgabe))\b",
    r"\b(?:prochaine étape|reste à|à faire|en attente|pas encore|question ouverte)\b",
    r"\b(?:pendientes?|siguiente paso|próximo paso|falta|por hacer|todavía no|aún no)\b",
    r"待办|下一步|接下来|还需要|尚未|未完成|待确认|待定",
)
_DONE = _any(
    r"^\s*[-*+] \[[xX]\]|^\s*(?:[-*] )?(?:✅|✓|✔)",
    r"^(?:i(?:['’]ve| have) (?!to\b|a\b|no\b|not\b|the\b)\w+|done\b|fixed\b|successfully \w+|now (?:it )?(?:returns|passes|works|uses|shows|handles)\b|all \w+ (?:tests?|checks?) (?:now )?pass|"
    r"all (?:tests|checks) (?:now )?pass|your .{3,80}\b(?:has|have) been \w+|(?:added|created|implemented|updated|removed|completed|"
    r"committed|pushed|merged|verified|renamed|deployed|installed|booked|cancell?ed|refactored) )",
    r"\b(?:has|have) been (?:successfully )?(?:added|created|implemented|updated|removed|completed|fixed|committed|pushed|merged|"
    r"booked|cancell?ed|changed|upgraded|refunded|processed|deployed)\b",
    r"^(?:erledigt|fertig|behoben|ich habe .{3,120}(?:t|en)\.|terminé|c['’]est fait|j['’]ai \w+é|hecho|listo|he \w+(?:ado|ido)|已完成|已修复|完成了)",
)
_LABEL = re.compile(
    r"^\W{0,3}(?P<label>(?:[A-Z]{2,}(?:[ _-][A-Z]{2,}){0,2})|(?:note|rule|fact|constraint|requirement|preference|decision|reminder|goal|"
    r"important|todo|remember|regel|wichtig|hinweis|règle|remarque|regla|nota|规则|注意|要求|偏好|事实))\W{0,2}\s?[:：]\s*",
    re.IGNORECASE,
)
_LABELS: tuple[tuple[str, Kind], ...] = (
    (
        "rule regel règle regla 规则 constraint requirement important wichtig 要求 must warning never always",
        "constraint",
    ),
    ("preference prefer 偏好", "preference"),
    ("decision decided", "decision"),
    ("goal todo open next task state", "open"),
    ("fact note remember reminder hinweis remarque nota 注意 事实 info update fyi", "fact"),
)
_CHATTER = re.compile(
    r"^(?:let['’]?s? (?:me )?(?:check|see|look|start|take|run|read|now|first|verify|continue|examine|explore)|let me\b|now (?:let|i)\b|"
    r"i['’]ll (?:check|look|start|now|help|read|run|search|need|begin)\b|i need to\b)",
    re.IGNORECASE,
)
_SOFT = re.compile(
    r"^(?:thanks|thank you|wow|love|glad|sounds|sure|yeah|haha|congrat\w*|keep it up)\b|\bmust be (?:so |really |very )?\w+(?:ing|ful|some|nice|great|hard|fun)\b|"
    r"\b(?:i|you|we|they|he|she|it|that|who)(?:['’]\w+)? (?:\w+ ){0,3}(?:never|always|love|like|hate|forever)\b|"
    r"\b(?:for|of|to|by|how) (?:\w+ )?(?:never|always)\b|!$|^no (?:problem|worries|way|doubt)\b|^(?:always|never) (?:up|there|been|had|a)\b|"
    r"(?:\b(?:is|was|are|were|has|have|had|been|isn['’]t|aren['’]t)|['’]s) (?:always|never)\b|\bmust (?:really )?(?:feel|enjoy)\b|"
    r"\bi(?:['’]ll| will) (?:\w+ )?(?:make sure|be sure|remember|never|always)\b|\bi (?:still )?remember\b",
    re.IGNORECASE,
)
_ADDRESSED = re.compile(r"\byou (?:must|should|may|need|have to|can only|are (?:not )?allowed)\b", re.IGNORECASE)
THANKS = re.compile(
    r"^(?:thanks?\b|thank you|ok(?:ay)?\b|yes\b|yep\b|no\b|great\b|perfect\b|cool\b|nice\b|danke\b|merci\b|gracias\b|谢谢|好的).{0,60}$",
    re.IGNORECASE,
)
"""A short message that only thanks or agrees: what was asked stands before it."""

UPDATE = _any(
    r"\b(?:now|new|update[ds]?|chang(?:e[ds]?|ing)|moved?|switch(?:ed)?|instead|rather|from now on|no longer|anymore|rotat(?:ed|ion)|"
    r"actually|correction|scratch that|renamed|rebased|replac(?:ed|es)|retired|previous|old|latest|postponed|raised|lowered|"
    r"increased?|decreased?|bumped?)\b",
    r"\b(?:jetzt|nun|neu\w*|geändert|ändert|verschoben|stattdessen|doch|ab sofort|maintenant|désormais|nouveau|nouvelle|changé|"
    r"plutôt|ahora|nuev[oa]|cambi\w+|mejor)\b",
    r"现在|改为|改成|改用|更新|换成|更正|不再",
)
"""A sentence with one of these words may replace an earlier value although it words the matter otherwise."""

OWN = _any(
    r"\b(?:my|our) (?:\w+ ){1,3}(?:is|are|was)\b|\bi(?:['’]m| am) (?:allergic|based|from|called|a |an )|\bi (?:live|work) (?:in|at|on|for)\b",
    r"\b(?:mein|meine|unser|unsere) (?:\w+ ){1,2}(?:ist|sind)\b|\b(?:mon|ma|mes|notre|nos) (?:\w+ ){1,2}(?:est|sont)\b|"
    r"\b(?:mi|mis|nuestr[oa]s?) (?:\w+ ){1,2}(?:es|son)\b|我(?:的|叫|是|住|在)|我们的",
)
"""What a user says of themselves or of what is theirs."""


def parse_label(sentence: str) -> tuple[Kind | None, str]:
    """The kind that a leading label such as `RULE:` names, and the sentence without the label."""
    hit = _LABEL.match(sentence)
    if hit is None or not sentence[hit.end() :].strip():
        return None, sentence
    words = hit["label"].lower()
    for known, kind in _LABELS:
        if any(word in words.split() for word in known.split()):
            return kind, sentence[hit.end() :]
    return None, sentence


def is_soft(sentence: str) -> bool:
    """Whether it has the cues of a rule but tells of people and feelings ("I always loved it", "never give up!")."""
    return _SOFT.search(sentence) is not None and _ADDRESSED.search(sentence) is None


def requested_kind(sentence: str) -> Kind | None:
    """What a user's sentence is, by its cues, the strictest first; None if it has none."""
    if sentence.rstrip("\"'”’) ").endswith(("?", "？")):
        return None
    for kind, cue in _USER_CUES:
        if cue.search(sentence):
            return kind
    return None


def reported_kind(sentence: str) -> Kind | None:
    """What an assistant's sentence is, by its cues; None for chatter and questions."""
    if sentence.rstrip("\"'”’) ").endswith(("?", "？")) or _CHATTER.match(sentence):
        return None
    for kind, cue in _ASSISTANT_CUES:
        if cue.search(sentence):
            return kind
    return None


_USER_CUES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("constraint", _MUST),
    ("preference", _PREFER),
    ("constraint", _REMEMBER),
    ("decision", _DECISION),
    ("open", _OPEN),
)
_ASSISTANT_CUES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("done", _DONE),
    ("open", _OPEN),
    ("decision", _DECISION),
)

"""What people say once in passing and expect to be kept: forty sentences, planted one at a time into real sessions.

They were written before the rules of extraction were looked at, and are not changed to suit them. The key is the part
without which the sentence is worth nothing: it has to stand in a body word for word.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Plant(Struct, frozen=True):
    """One sentence, its key, what it is, and its language."""

    text: str
    key: str
    kind: str
    language: str = "English"


def _plants(kind: str, language: str, *said: tuple[str, str]) -> tuple[Plant, ...]:
    return tuple(Plant(text, key, kind, language) for text, key in said)


PLANTS: Sequence[Plant] = (
    *_plants(
        "rule",
        "English",
        ("Never push straight to the branch release/aurora.", "release/aurora"),
        ("We keep the parser free of recursion, the firmware people depend on that.", "parser free of recursion"),
        ("Whatever happens, leave the table legacy_invoices_v2 untouched.", "legacy_invoices_v2"),
        ("Don't add any dependency that needs a C++ compiler.", "needs a C++ compiler"),
        ("If the upload fails, wait 95 seconds before you try again.", "95 seconds"),
        ("No mails between 21:30 and 06:15, the people on call need their sleep.", "21:30 and 06:15"),
        ("Please stay under 73 columns in every commit message.", "73 columns"),
        ("I'm allergic to sesame, so keep that off every order.", "allergic to sesame"),
    ),
    *_plants(
        "preference",
        "English",
        ("I like tabs better than spaces in the makefiles that we ship.", "tabs better than spaces"),
        ("Reports are written in British spelling.", "British spelling"),
        ("My colleague reads everything on a phone, short answers work best for her.", "short answers work best"),
    ),
    *_plants(
        "decision",
        "English",
        ("We settled on Postgres 15.6 for the archive, so no more SQLite there.", "Postgres 15.6"),
        ("The feature flag is called enable_mirror_reads and stays off until I say so.", "enable_mirror_reads"),
    ),
    *_plants(
        "deadline",
        "English",
        ("All of this has to be handed over by 14 March, 17:40 at the latest.", "14 March, 17:40"),
        ("The demo for the board is on Thursday the 19th at 8:50.", "Thursday the 19th at 8:50"),
    ),
    *_plants(
        "fact",
        "English",
        ("By the way, the staging gateway listens on 48217.", "48217"),
        ("Scratch output goes to /srv/halcyon/tmp-out these days.", "/srv/halcyon/tmp-out"),
        ("Sign-off comes from Ottilie Brandvold, nobody else.", "Ottilie Brandvold"),
        ("The ticket for all this is KESTREL-5592.", "KESTREL-5592"),
        ("The tenant we test with is 7c1e9d42-03bb-4f6a.", "7c1e9d42-03bb-4f6a"),
        ("Memory on the target boards tops out at 384 MiB.", "384 MiB"),
        ("Our customer number with the carrier is 8830-1174.", "8830-1174"),
        ("We have 12,450 euros for this quarter and not a cent more.", "12,450 euros"),
        ("Only Python 3.7.17 is to be found on the computers in the plant.", "Python 3.7.17"),
    ),
    *_plants("rule", "German", ("Bitte niemals direkt in der Tabelle kunden_stamm ändern.", "kunden_stamm")),
    *_plants("preference", "German", ("Kurze Funktionen unter 26 Zeilen sind mir am liebsten.", "26 Zeilen")),
    *_plants("deadline", "German", ("Abgabe ist am 23. Oktober um 11:20 Uhr.", "23. Oktober um 11:20")),
    *_plants("fact", "German", ("Der Testserver läuft übrigens auf Port 39064.", "39064")),
    *_plants("rule", "French", ("Ne touche surtout pas au dossier /opt/glycine/archives.", "/opt/glycine/archives")),
    *_plants("preference", "French", ("Je préfère que les montants soient arrondis à 3 décimales.", "3 décimales")),
    *_plants("deadline", "French", ("La livraison est prévue pour le 9 juin à 8 h 45.", "9 juin à 8 h 45")),
    *_plants("fact", "French", ("Chez le fournisseur, on voit avec Maëlys Kerouanton.", "Maëlys Kerouanton")),
    *_plants("rule", "Spanish", ("No uses nunca la cuenta de producción ops-raiz-77.", "ops-raiz-77")),
    *_plants("preference", "Spanish", ("Me gustan más los mensajes de menos de 62 palabras.", "62 palabras")),
    *_plants("fact", "Spanish", ("El almacén cierra a las 19:25 todos los viernes.", "19:25")),
    *_plants("fact", "Spanish", ("Los informes van a la carpeta /datos/olmo/salidas.", "/datos/olmo/salidas")),
    *_plants("rule", "Chinese", ("不要修改 config/baihe.toml 这个文件。", "config/baihe.toml")),
    *_plants("deadline", "Chinese", ("请在11月28日下午4点之前完成。", "11月28日下午4点")),
    *_plants("fact", "Chinese", ("数据库的端口是 52743。", "52743"), ("负责审核的人是欧阳雪莹。", "欧阳雪莹")),
)

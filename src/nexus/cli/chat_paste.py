"""Long pastes in the input line: a short placeholder is shown, and the text is sent."""

from __future__ import annotations

from prompt_toolkit.history import FileHistory

from nexus.cli._output import count_noun

INLINE_LINES = 10
"""Lines of a paste that is shown as it is."""

INLINE_CHARS = 1_000
"""Characters of a paste that is shown as it is."""


class Pastes:
    """The long pastes of a chat, by placeholder."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def shorten(self, paste: str) -> str:
        """Return a paste as the input line shows it: whole, or a placeholder such as `[Pasted 400 lines]`."""
        text = paste.replace("\r\n", "\n").replace("\r", "\n")
        lines = len(text.splitlines())
        if lines <= INLINE_LINES and len(text) <= INLINE_CHARS:
            return text
        name = f"Pasted {count_noun(lines, 'line') if lines > INLINE_LINES else count_noun(len(text), 'character')}"
        placeholder, number = f"[{name}]", 1
        while self._texts.get(placeholder, text) != text:
            number += 1
            placeholder = f"[{name}, {number}]"
        self._texts[placeholder] = text
        return placeholder

    def expand(self, line: str) -> str:
        """Return the text of an input line with its pastes. Text in a paste that looks like a placeholder stays."""
        pieces, at = list[str](), 0
        while True:
            starts = [(line.find(placeholder, at), placeholder) for placeholder in self._texts]
            start, placeholder = min(((start, name) for start, name in starts if start >= 0), default=(-1, ""))
            if start < 0:
                return "".join((*pieces, line[at:]))
            pieces += (line[at:start], self._texts[placeholder])
            at = start + len(placeholder)

    def placeholder_before(self, text: str) -> str:
        """Return the placeholder with which a text ends; an empty string if it ends with none."""
        return next((placeholder for placeholder in self._texts if text.endswith(placeholder)), "")


class PasteFileHistory(FileHistory):
    """A history in a file, which gets the texts of pastes: a later chat does not know their placeholders."""

    def __init__(self, file: str, pastes: Pastes) -> None:
        super().__init__(file)
        self._pastes = pastes

    def store_string(self, string: str) -> None:
        """Add a message to the file."""
        super().store_string(self._pastes.expand(string))

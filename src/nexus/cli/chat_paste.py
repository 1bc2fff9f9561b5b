"""Long pastes in the input line: a short name is shown, and the text is sent."""

from __future__ import annotations

from bisect import bisect_right

from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments

from nexus.cli._output import count_noun

INLINE_LINES = 10
"""Lines of a paste that is shown as it is."""

INLINE_CHARS = 1_000
"""Characters of a paste that is shown as it is."""

LAST_PRIVATE = 0x10FFFD
"""The last character for private use. Pastes are this one and the ones before it, which no keyboard has."""


class Pastes:
    """The long pastes of a chat. In the input line each is one character, so that no key can break it."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def shorten(self, paste: str) -> str:
        """Return a paste as the input line has it: whole, or a character that is shown as its name."""
        text = paste.replace("\r\n", "\n").replace("\r", "\n")
        lines = len(text.splitlines())
        if lines <= INLINE_LINES and len(text) <= INLINE_CHARS:
            return text
        mark = chr(LAST_PRIVATE - len(self._texts))
        if lines > INLINE_LINES:
            size = count_noun(lines, "line")
        else:
            size = count_noun(len(text), "character")
        self._texts[mark], self._names[mark] = text, f"[Pasted {size}]"
        return mark

    def expand(self, line: str) -> str:
        """Return an input line with the texts of its pastes."""
        return "".join(self._texts.get(char, char) for char in line)

    def show(self, line: str) -> str:
        """Return an input line with the names of its pastes: `[Pasted 400 lines]`."""
        return "".join(self._names.get(char, char) for char in line)

    def shorten_known(self, text: str) -> str:
        """Return a text with the pastes of this chat that it contains shortened again."""
        for mark, paste in self._texts.items():
            text = text.replace(paste, mark)
        return text


class PasteNames(Processor):
    """Shows the names of pastes in the input line."""

    def __init__(self, pastes: Pastes) -> None:
        self._pastes = pastes

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Return a line as it is shown, with the positions of its characters."""
        fragments = list[tuple[str, str]]()
        starts = [0]
        for style, char, *_ in explode_text_fragments(transformation_input.fragments):
            fragments.append((style, self._pastes.show(char)))
            starts.append(starts[-1] + len(fragments[-1][1]))
        return Transformation(
            FormattedText(fragments),
            lambda at: starts[min(at, len(starts) - 1)],
            lambda at: bisect_right(starts, at) - 1,
        )


class PasteFileHistory(FileHistory):
    """A history in a file, which gets the texts of pastes: a later chat does not know them."""

    def __init__(self, file: str, pastes: Pastes) -> None:
        super().__init__(file)
        self._pastes = pastes

    def store_string(self, string: str) -> None:
        """Add a message to the file."""
        super().store_string(self._pastes.expand(string))

"""Text whose words have a number each: coloured in a terminal, on a page, and in a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .pages import write_page
from .pictures import text_picture, write_picture

# Blue and red, which differ in brightness too, by amount; the numbers stand beside them where they are told.
_LESS, _MORE = (27, 79, 143), (200, 60, 20)


def terminal_text(words: Sequence[str], values: Sequence[float], colours: bool = True) -> str:
    """
    A line of words on grounds by their values, red above 0 and blue below, for terminals of 24-bit colours; without
    colours each word with its value.
    """
    if not colours:
        return " ".join(f"{word}({value:+.2f})" for word, value in zip(words, values, strict=True))
    parts, most = [], max(map(abs, values), default=0) or 1.0
    for word, value in zip(words, values, strict=True):
        share = abs(value) / most
        red, green, blue = (round(255 - share * (255 - full)) for full in (_MORE if value > 0 else _LESS))
        ink = 255 if share > 0.6 else 0
        parts.append(f"\x1b[48;2;{red};{green};{blue};38;2;{ink};{ink};{ink}m{word}\x1b[0m")
    return " ".join(parts)


def write_coloured(path: Path, title: str, texts: Sequence[Mapping[str, Any]]) -> None:
    """
    Coloured texts as a page, and as a picture with its numbers beside it.

    Args:
        path (`Path`): of the files, without a suffix.
        title (`str`): what the numbers are.
        texts (`Sequence[Mapping]`): with `words`, `values` (a number each) and, optionally, `label`, and `view`: texts
            of one view are coloured on one scale; the page lets choose one, the picture shows the first.
    """
    record = {"title": title, "texts": list(texts)}
    first = [text for text in texts if text.get("view") == texts[0].get("view")]
    write_page(path.with_suffix(".html"), title, record, template="coloured")
    write_picture(path.with_suffix(".png"), text_picture(first, title), record)

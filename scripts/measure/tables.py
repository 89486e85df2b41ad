"""What all tables of measurements are written with."""

import statistics
from collections.abc import Collection, Iterable, Sequence


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(
        f"| {' | '.join(cells)} |" if cells else "|---" * len(header) + "|" for cells in (header, (), *rows)
    )


def spread(values: Collection[float], digits: int = 3) -> str:
    """The median and, of several, in brackets the lowest and the highest."""
    brackets = f" ({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.{digits}f}{brackets}"

"""Log-probabilities of an answer as people read them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

from kakeya import Alternative
from kakeya_fleet.node.cli.terminal.tables import Column


def log_probability_table(
    token_ids: Sequence[int],
    log_probabilities: Sequence[float],
    alternatives: Sequence[Sequence[Alternative]],
    decode: Callable[[Sequence[int]], str],
) -> tuple[list[Column], list[list[str]]]:
    """Columns and rows: one token a row, with its alternatives.

    `log_probabilities` has an item a token, at least one; `alternatives` too,
    or none.
    """

    def word(token_id: int) -> str:
        # Quoted, since spaces and line ends are tokens too.
        return json.dumps(decode([token_id]), ensure_ascii=False)

    columns = [Column("id", right=True), Column("token"), Column("log p", right=True)]
    if alternatives:
        columns.append(Column("likeliest", folds=1))
    rows = []
    for index, (token_id, value) in enumerate(zip(token_ids, log_probabilities, strict=True)):
        row = [str(token_id), word(token_id), f"{value:.3f}"]
        if alternatives:
            row.append(
                "  ".join(
                    f"{word(each.token_id)} {each.log_probability:.3f}"
                    for each in alternatives[index]
                )
            )
        rows.append(row)
    return columns, rows


def perplexity_line(log_probabilities: Sequence[float]) -> str:
    """How likely the answer was as a whole; of at least one token."""
    mean = math.fsum(log_probabilities) / len(log_probabilities)
    return f"mean log-probability {mean:.3f}, perplexity {_perplexity(mean)}"


def _perplexity(mean: float) -> str:
    try:
        return f"{math.exp(-mean):,.2f}"
    except OverflowError:
        return "too large to print"

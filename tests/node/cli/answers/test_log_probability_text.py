import math
from collections.abc import Sequence

from kakeya import Alternative
from kakeya_fleet.node.cli.answers.log_probability_text import (
    log_probability_table,
    perplexity_line,
)
from kakeya_fleet.node.cli.terminal.tables import plain_table

WORDS = {1: " a", 2: "\n", 3: "ß"}


def decode(token_ids: Sequence[int]) -> str:
    return "".join(WORDS[token_id] for token_id in token_ids)


def test_a_token_a_line_with_what_was_likely_in_its_place() -> None:
    alternatives = [
        (Alternative(3, -0.1), Alternative(1, math.log(0.5))),
        (Alternative(2, math.log(0.125)),),
    ]
    values = [math.log(0.5), math.log(0.125)]
    table = plain_table(*log_probability_table([1, 2], values, alternatives, decode))
    assert [*table.splitlines(), perplexity_line(values)] == [
        "id  token   log p  likeliest",
        ' 1  " a"   -0.693  "ß" -0.100  " a" -0.693',
        r' 2  "\n"   -2.079  "\n" -2.079',
        "mean log-probability -1.386, perplexity 4.00",
    ]


def test_without_alternatives_there_is_no_column_for_them() -> None:
    columns, _ = log_probability_table([3], [0.0], (), decode)
    assert [column.title for column in columns] == ["id", "token", "log p"]
    assert perplexity_line([0.0]) == "mean log-probability 0.000, perplexity 1.00"


def test_a_perplexity_beyond_all_numbers_is_no_failure() -> None:
    assert "too large" in perplexity_line([-1e4])

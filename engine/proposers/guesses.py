"""How many guessed tokens a forward of a drafter takes along.

Rows of a forward share the reading of the weights, so that a further row takes a part of what a
forward takes, and where its token is guessed right it saves one. Of guesses whose chances to be
right, those before them being so, are p_1, p_2, ..., the first k make

    (1 + p_1 + p_1 p_2 + ... + p_1 ... p_k) / seconds(rows + k)

tokens a second, and the best k is taken. Both are learned as it drafts: what rows take differs
among processors, and how well a text repeats itself among texts. A guess that is not taken along is
seen to be right or wrong all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from kakeya_fleet.engine.proposers.ngram import LONGEST_GRAM, Quote

EXPECTED = (0.2, 0.4, 0.6, 0.7, 0.8)
"""Chances to be right, by how many tokens stood together: answers of a small model."""
EXPECTED_WEIGHT = 8
"""So many guesses are as much as is expected."""
REMEMBERED = 64
"""Guesses of a kind; a text changes."""
FADING = 0.99
"""What a forward weighs once the next was seen; a machine is busy at times."""
LEAST = 1e-9


class GuessChances:
    """Of one text, how often what followed where the last tokens stood before follows again."""

    def __init__(self) -> None:
        self._right = [chance * EXPECTED_WEIGHT for chance in EXPECTED]
        self._guessed = [float(EXPECTED_WEIGHT)] * LONGEST_GRAM

    def of(self, quote: Quote, count: int) -> list[float]:
        """Of its first `count` tokens, each if those before it are right: then more match."""
        kinds = [_kind(quote, place) for place in range(count)]
        return [self._right[kind] / self._guessed[kind] for kind in kinds]

    def seen(self, quote: Quote, said: Sequence[int]) -> None:
        """That `said` came where it was expected to."""
        for place, (guess, token) in enumerate(zip(quote.token_ids, said, strict=False)):
            kind = _kind(quote, place)
            if self._guessed[kind] >= REMEMBERED:
                self._guessed[kind] /= 2
                self._right[kind] /= 2
            self._guessed[kind] += 1
            self._right[kind] += guess == token
            if guess != token:
                return


def _kind(quote: Quote, place: int) -> int:
    return min(quote.matched + place, LONGEST_GRAM) - 1


class RowSeconds:
    """What forwards of a model take by their rows: a line, through the latest of them."""

    def __init__(self) -> None:
        # Weighted sums: of 1, rows, rows², seconds, and rows times seconds.
        self._weight = self._rows = self._squares = self._seconds = self._products = 0.0

    def seen(self, rows: int, seconds: float) -> None:
        """That a forward took so long."""
        self._weight = self._weight * FADING + 1
        self._rows = self._rows * FADING + rows
        self._squares = self._squares * FADING + rows * rows
        self._seconds = self._seconds * FADING + seconds
        self._products = self._products * FADING + rows * seconds

    def of(self, rows: int) -> float:
        """Seconds of a forward. A further row takes none before two numbers of them were seen."""
        if not self._weight:
            return 0.0
        mean, spread = self._rows / self._weight, self._squares * self._weight - self._rows**2
        together = self._products * self._weight - self._rows * self._seconds
        a_row = max(0.0, together / spread) if spread > LEAST else 0.0
        return max(0.0, self._seconds / self._weight + a_row * (rows - mean))


def worth_guessing(chances: Sequence[float], seconds: RowSeconds, rows: int) -> int:
    """How many guesses go along with `rows` rows, of those with these `chances`."""
    tokens, chance, best = 1.0, 1.0, (0.0, 0)
    for count in range(len(chances) + 1):
        if count:
            chance *= chances[count - 1]
            tokens += chance
        # The most of those that are equally good.
        best = max(best, (tokens / max(LEAST, seconds.of(rows + count)), count))
    return best[1]

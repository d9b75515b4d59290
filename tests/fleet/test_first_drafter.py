"""Whether somebody has to be loaded so that a new verifier's sessions can have drafts."""

import pytest

from kakeya_fleet.fleet.placement.first_drafter import Drafter, first_drafter

WEIGHTS, TOKENIZER = "w1", "t1"
NGRAM = Drafter("ngram")
TRAINED = Drafter("trained", "", WEIGHTS, TOKENIZER)
FOREIGN = Drafter("foreign", "", "w2", TOKENIZER)
PLAIN = Drafter("plain", "", "", TOKENIZER)
OTHER_TEXT = Drafter("other", "", "", "t2")


def served(drafter: Drafter) -> Drafter:
    return Drafter(drafter.name, "mini-2", drafter.target_digest, drafter.tokenizer_digest)


@pytest.mark.parametrize(
    ("there", "loadable", "found"),
    [
        # Nobody drafts: what was trained for it, else n-grams, which fit everything.
        ([], [NGRAM, FOREIGN, TRAINED], TRAINED),
        ([], [NGRAM, FOREIGN, OTHER_TEXT], NGRAM),
        ([], [FOREIGN, OTHER_TEXT], None),
        # Somebody does: nothing is loaded, even if that would fit better.
        ([NGRAM], [TRAINED], served(NGRAM)),
        ([PLAIN, NGRAM], [TRAINED], served(PLAIN)),
        ([NGRAM, PLAIN, TRAINED], [], served(TRAINED)),
        # Those of other verifiers are nobody to it, though their tokenizer is its own.
        ([FOREIGN, OTHER_TEXT], [NGRAM], NGRAM),
    ],
)
def test_who_drafts_first(
    there: list[Drafter], loadable: list[Drafter], found: Drafter | None
) -> None:
    assert first_drafter(WEIGHTS, TOKENIZER, map(served, there), loadable) == found

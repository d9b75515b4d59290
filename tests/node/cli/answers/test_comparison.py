import dataclasses
import hashlib
from collections.abc import Sequence
from typing import cast

import pytest

from kakeya import (
    AsyncClient,
    GenerationDone,
    KvStrategy,
    Placement,
    Plan,
    SpeculationStatistics,
    StopReason,
    Timings,
)
from kakeya_fleet.node.cli.answers.answer import Answer, Question, digest_of
from kakeya_fleet.node.cli.answers.comparison import Comparison, compare
from kakeya_fleet.node.cli.asking.tokenizer import TextTokenizer
from kakeya_fleet.node.cli.shell.remedies import with_remedy

NUMBERS = SpeculationStatistics(0, 0, 0, 1, 1.0, 0.0, 0.0, (), None, 0, 0, "", "")
DONE = GenerationDone(StopReason.MAX_TOKENS, 3, 4, Timings(0, 0, 0, 1), NUMBERS, (), 0)
ALONE = Plan(Placement("v", "n", "a:1", "m"), None, None, 0, 0, 0, 0, 0, False, 0, (), (), True)


def comparison(drafted: Sequence[int], alone: Sequence[int]) -> Comparison:
    return Comparison("x", *(Answer(tuple(ids), DONE, ALONE, 1.0) for ids in (drafted, alone)))


@pytest.mark.parametrize(
    ("drafted", "alone", "first"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([], [], None),
        ([1, 2, 3], [1, 9, 3], 1),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2, 3], [], 0),
    ],
)
def test_streams_are_compared_by_every_id_and_by_their_length(
    drafted: list[int], alone: list[int], first: int | None
) -> None:
    result = comparison(drafted, alone)
    assert result.first_difference == first
    assert result.identical is (first is None)
    assert (result.drafted.digest == result.alone.digest) is (first is None)


def test_the_digest_is_over_the_ids_as_32_bits_little_endian() -> None:
    assert digest_of([1, 256]) == hashlib.sha256(b"\1\0\0\0\0\1\0\0").hexdigest()
    assert digest_of([1, 256]) != digest_of([256, 1])


def test_a_refusal_ends_with_its_mend() -> None:
    assert with_remedy("DRAINING", "mini-1 is leaving.") == (
        "mini-1 is leaving; ask another node with --node HOST:PORT."
    )
    assert with_remedy("BAD_REQUEST", "top_p is 7") == "top_p is 7."
    assert with_remedy("NODE_UNREACHABLE", "is it running?") == "is it running?"


@pytest.mark.parametrize("kept", [None, *KvStrategy])
async def test_both_answers_are_kept_as_the_node_chose_for_the_first(
    monkeypatch: pytest.MonkeyPatch, kept: KvStrategy | None
) -> None:
    """An archive that comes or goes between the two must not make their streams differ."""
    asked: list[str | None] = []

    async def answered(
        _client: object, question: Question, _tokenizer: object, _choice: object
    ) -> Answer:
        asked.append(question.kv.strategy)
        return Answer((1,), DONE, dataclasses.replace(ALONE, kv_strategy=kept), 1.0)

    monkeypatch.setattr("kakeya_fleet.node.cli.answers.comparison.answer", answered)
    # Who answers asks neither.
    client, tokenizer = cast("AsyncClient", None), cast("TextTokenizer", None)
    await compare(client, Question("m", "x", 1), tokenizer, "off")
    assert asked == [None, kept]

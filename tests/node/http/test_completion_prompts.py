"""The prompts of /v1/completions: told apart by their kinds, in little time."""

import pytest

from kakeya_fleet.node.http.completion_request import read_completion
from kakeya_fleet.node.http.refusal import HttpRefusal


def refused(prompt: object, n: int = 1) -> HttpRefusal:
    with pytest.raises(HttpRefusal) as caught:
        read_completion({"model": "tiny", "prompt": prompt, "n": n})
    return caught.value


def test_prompts_are_told_apart_by_their_kinds() -> None:
    def prompts(value: object, n: int = 1) -> tuple[object, ...]:
        return read_completion({"model": "tiny", "prompt": value, "n": n}).prompts

    assert prompts("a") == ("a",)
    assert prompts(["a", "b"]) == ("a", "b")
    assert prompts([1, 2]) == ((1, 2),)
    assert prompts([1] * 1000, n=16) == ((1,) * 1000,)
    assert prompts([[1], [2, 3]]) == ((1,), (2, 3))
    wrong: object
    for wrong in (
        None, 7, [], [[]], [["a"]], [1, "a"], ["a", 1], ["a", [1]], [True], [1.0], [-1], [1 << 31],
        [[1], []], [None] * 100, {},
    ):  # fmt: skip
        assert "prompt is a string" in str(refused(wrong)), wrong


def test_too_many_prompts_are_refused_before_a_look_at_each() -> None:
    class Watched(list[int]):
        def __len__(self) -> int:
            raise AssertionError("a prompt was looked at")

    assert "prompts times n are 17, above 16" in str(refused([Watched()] * 17))
    assert "prompts times n are 20, above 16" in str(refused(["a"] * 10, n=2))


def test_too_many_biases_are_refused_before_a_look_at_each() -> None:
    no_ids = {f"x{number}": 1 for number in range(1025)}
    with pytest.raises(HttpRefusal, match="logit_bias has 1025 ids, at most 1024"):
        read_completion({"model": "tiny", "prompt": "a", "logit_bias": no_ids})

"""Which of a test's cases `make test` runs, and which `make test-wide` does.

A promise is held by `make test`: by one case of each kind of arithmetic, cache or course of
events. Another family of the same kind, a further size, or the same once more among real
processes is wide, and so is a whole program of parts that are tested: the demo, a wheel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., object])


def wide(*values: Any, name: str | None = None) -> pytest.ParameterSet:
    """A case of `pytest.mark.parametrize`, or of a fixture's `params`, that is wide."""
    return pytest.param(*values, marks=pytest.mark.wide, id=name)


def again(times: int) -> Callable[[Test], Test]:
    """Runs a test so many times, all of which but the first are wide.

    For one whose examples are drawn: others are drawn each time.
    """
    cases = [0, *(wide(time) for time in range(1, times))]

    def mark(test: Test) -> Test:
        marks = (
            pytest.mark.usefixtures("time_again"),
            pytest.mark.parametrize("time_again", cases),
        )
        # Each stores itself on the test, and gives it back.
        for each in marks:
            each(test)
        return test

    return mark


def all_wide_but(
    kept: Callable[[Any], bool] | Iterable[Any], cases: Iterable[Any], *, several: bool = False
) -> list[Any | pytest.ParameterSet]:
    """`cases`, of which those are wide that `kept` does not have, or says no of.

    `several`: each case is a tuple of as many arguments, and not one value.
    """
    cases = list(cases)
    if callable(kept):
        narrow = [case for case in cases if kept(case)]
    else:
        narrow = list(kept)
        absent = [each for each in narrow if each not in cases]
        assert not absent, f"no cases to keep: {absent}"
    return [case if case in narrow else wide(*case) if several else wide(case) for case in cases]

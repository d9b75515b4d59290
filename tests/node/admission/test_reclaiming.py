"""Places are taken back from whoever holds the most, the longest silent first."""

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.node.admission.reclaiming import to_reclaim

callers = st.lists(st.sampled_from("abcd"), max_size=30)


@dataclass(frozen=True)
class Seat:
    caller: str
    silent_ms: float


@given(callers, st.integers(0, 40))
def test_who_holds_the_most_loses_first(names: list[str], count: int) -> None:
    held = [Seat(name, number) for number, name in enumerate(names)]
    ended = to_reclaim(held, count)
    assert len(ended) == len(set(ended)) == min(count, len(held))
    before, lost = Counter(names), Counter(each.caller for each in ended)
    most = max((before[name] - lost[name] for name in before), default=0)
    assert all(before[name] - lost[name] >= most - 1 for name in lost)
    for name in before:
        silences = sorted((each.silent_ms for each in held if each.caller == name), reverse=True)
        assert [each.silent_ms for each in ended if each.caller == name] == silences[: lost[name]]

from __future__ import annotations

from itertools import pairwise

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.fleet.placement.archive_choice import ArchiveCandidate
from kakeya_fleet.fleet.placement.archive_shares import (
    BOUNDARY_POSITIONS,
    ArchiveShare,
    needed_bytes,
    share_positions,
    wait_seconds,
)
from tests.support.breadth import again

A_BYTE = 10
CHUNK = BOUNDARY_POSITIONS * A_BYTE


def archive(
    name: str, chunks: float, trip: float | None = 0.001, *, is_own: bool = False
) -> ArchiveCandidate:
    free = int(chunks * CHUNK)
    return ArchiveCandidate(name, name, f"{name}:1", trip, "", free, is_own)


def ranges(shares: tuple[ArchiveShare, ...] | None) -> list[tuple[str, int, int]] | None:
    if shares is None:
        return None
    return [(share.candidate.node_id, share.first, share.end) for share in shares]


def shared(candidates: list[ArchiveCandidate], end: int, first: int = 4) -> object:
    return ranges(share_positions(candidates, first, end, A_BYTE))


def test_ranges_end_where_attention_is_cut_into_chunks() -> None:
    assert BOUNDARY_POSITIONS == CHUNK_KEYS


def test_the_nearest_with_room_keeps_all() -> None:
    near, far = archive("near", 4, 0.001), archive("far", 9, 0.002)
    assert shared([far, near], 20_000) == [("near", 4, 20_000)]
    # Whole segments of 1,024 are allocated: the last position may be one too many.
    assert shared([far, near], 4 * 8192) == [("near", 4, 32_768)]
    assert shared([far, near], 4 * 8192 + 1) == [("far", 4, 32_769)]
    assert needed_bytes(4 * 8192 + 1, A_BYTE) == (4 * 8192 + 1024) * A_BYTE


def test_several_share_at_multiples_of_the_boundary_the_nearest_first() -> None:
    candidates = [archive("c", 1.9, 0.003), archive("a", 2.5, 0.001), archive("b", 1.2, 0.002)]
    first = [("a", 4, 16_384), ("b", 16_384, 24_576)]
    assert shared(candidates, 36_000) == [*first, ("c", 24_576, 36_000)]
    nearer = [*candidates, archive("d", 2, 0.0025)]
    assert shared(nearer, 36_000) == [*first, ("d", 24_576, 36_000)]
    # One that is not needed besides the others is left out, however near.
    assert shared(candidates, 30_000) == [("a", 4, 16_384), ("c", 16_384, 30_000)]
    assert shared(candidates, 5 * 8192) is None
    assert shared([], 1) is None


def test_near_ones_together_are_better_than_a_far_one_and_worse_than_one_as_near() -> None:
    near = [archive("a", 1, 0.001), archive("b", 1, 0.001)]
    both = [("a", 4, 8192), ("b", 8192, 16_384)]
    assert shared([*near, archive("far", 2, 0.0021)], 16_384) == both
    assert shared([*near, archive("one", 2, 0.002)], 16_384) == [("one", 4, 16_384)]


def test_the_own_node_and_unmeasured_ways_come_last() -> None:
    own, dark = archive("own", 9, 0.0, is_own=True), archive("dark", 9, None)
    assert shared([own, dark], 9000) == [("dark", 4, 9000)]
    assert shared([own, dark, archive("far", 9, 5.0)], 9000) == [("far", 4, 9000)]
    assert shared([own, archive("small", 1, 0.1)], 9000) == [("own", 4, 9000)]


def test_a_layer_waits_for_each_of_them() -> None:
    one, two, dark = archive("a", 1, 0.001), archive("b", 1, 0.002), archive("c", 1, None)
    shares = [ArchiveShare(each, 0, 1) for each in (one, two)]
    assert wait_seconds(shares) == 0.003
    assert wait_seconds([*shares, ArchiveShare(dark, 0, 1)]) is None
    assert wait_seconds([]) == 0.0


fleets = st.lists(
    st.tuples(st.floats(0, 5), st.none() | st.sampled_from([0.0005, 0.001, 0.002, 0.01])),
    max_size=5,
).map(lambda drawn: [archive(f"n{i}", chunks, trip) for i, (chunks, trip) in enumerate(drawn)])


@again(6)
@given(fleets, st.integers(1, 10 * 8192), st.integers(0, 4), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_ranges_cover_all_positions_once_within_the_room_and_in_any_order(
    candidates: list[ArchiveCandidate], end: int, first: int, random: object
) -> None:
    first = min(first, end)
    shares = share_positions(candidates, first, end, A_BYTE)
    shuffled = list(candidates)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert share_positions(shuffled, first, end, A_BYTE) == shares
    if shares is None:
        # Whole chunks, and one that holds the rest.
        whole = sum(one.free_bytes // CHUNK for one in candidates) * BOUNDARY_POSITIONS
        assert whole < end
        assert all(one.free_bytes < needed_bytes(end, A_BYTE) for one in candidates)
        return
    assert (shares[0].first, shares[-1].end) == (first, end)
    assert len({share.candidate.node_id for share in shares}) == len(shares)
    for one, other in pairwise(shares):
        assert one.end == other.first
        assert one.end % BOUNDARY_POSITIONS == 0
    for share in shares:
        start = share.first - share.first % BOUNDARY_POSITIONS
        assert (share.end - start) * A_BYTE <= share.candidate.free_bytes
    singles = [one for one in candidates if one.free_bytes >= needed_bytes(end, A_BYTE)]
    measured = [one.round_trip_seconds for one in singles if one.round_trip_seconds is not None]
    wait = wait_seconds(shares)
    if measured:
        assert wait is not None
        assert wait <= min(measured)
    # A slower one never changes the choice, whatever its room.
    assume(wait is not None)
    for chunks in (0.5, 20):
        slower = archive("slower", chunks, (wait or 0.0) + 0.001)
        assert share_positions([slower, *candidates], first, end, A_BYTE) == shares
        unmeasured = archive("dark", chunks, None)
        assert share_positions([*candidates, unmeasured], first, end, A_BYTE) == shares

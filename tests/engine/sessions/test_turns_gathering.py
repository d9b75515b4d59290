"""How long a batch waits for those who shared the last one."""

from __future__ import annotations

import pytest

from kakeya_fleet.engine.sessions.gathering import (
    MOST_LINGER_SECONDS,
    REMEMBERED_SESSIONS,
    Gathering,
)


def served(*sessions, seconds: float = 0.02):
    gathering = Gathering()
    gathering.served(sessions, 100.0, 100.0 + seconds)
    return gathering, 100.0 + seconds


def test_at_first_nobody_is_waited_for() -> None:
    assert Gathering().linger_seconds(5.0) == 0.0


def test_it_waits_a_tenth_of_the_batch_until_all_have_come() -> None:
    gathering, ended = served(1, 2)
    assert gathering.linger_seconds(ended) == pytest.approx(0.002)
    gathering.came(1, ended + 0.0005)
    assert gathering.linger_seconds(ended + 0.0005) == pytest.approx(0.0015)
    gathering.came(2, ended + 0.001)
    assert gathering.linger_seconds(ended + 0.001) == 0.0


def test_the_linger_ends() -> None:
    gathering, ended = served(1)
    assert gathering.linger_seconds(ended + 0.002) == pytest.approx(0.0, abs=1e-9)
    assert gathering.linger_seconds(ended + 9.0) == 0.0


def test_a_long_batch_does_not_make_it_patient() -> None:
    gathering, ended = served(1, seconds=60.0)
    assert gathering.linger_seconds(ended) == pytest.approx(MOST_LINGER_SECONDS)


def test_who_came_late_is_not_waited_for_until_it_comes_in_time() -> None:
    gathering, ended = served(1, 2)
    gathering.came(1, ended + 0.5)
    gathering.came(2, ended + 0.001)
    gathering.served([1], ended + 1.0, ended + 1.02)
    assert gathering.linger_seconds(ended + 1.02) == 0.0
    gathering.came(1, ended + 1.021)
    gathering.served([1], ended + 2.0, ended + 2.02)
    assert gathering.linger_seconds(ended + 2.02) > 0.0


def test_sessions_that_never_come_again_are_forgotten() -> None:
    gathering = Gathering()
    for session in range(3 * REMEMBERED_SESSIONS):
        gathering.served([session], 0.0, 0.01)
        gathering.came(session, 50.0)
    assert len(gathering._served) <= REMEMBERED_SESSIONS
    assert len(gathering._late) <= REMEMBERED_SESSIONS

"""Tokens a minute: what is lent, and when it is paid back."""

from __future__ import annotations

import random

from kakeya_fleet.fleet.trust.token_rate import MINUTE, TokenBucket


def test_a_minute_s_tokens_are_there_at_once_and_come_back_in_a_minute() -> None:
    bucket = TokenBucket(120, now=100.0)
    bucket.spend(120, 100.0)
    assert bucket.left(100.0) == 0
    assert bucket.left(130.0) == 60
    assert bucket.left(1000.0) == 120


def test_what_is_owed_is_paid_before_anything_begins() -> None:
    bucket = TokenBucket(60, now=0.0)
    bucket.spend(90, 0.0)
    assert bucket.left(0.0) == -30
    assert bucket.seconds_until_some(0.0) == 31
    assert bucket.left(30.0) == 0
    assert bucket.seconds_until_some(31.0) == 0


def test_work_that_runs_ends_once_it_owes_a_minute() -> None:
    bucket = TokenBucket(60, now=0.0)
    bucket.spend(119, 0.0)
    assert not bucket.owes_too_much(0.0)
    bucket.spend(1, 0.0)
    assert bucket.owes_too_much(0.0)
    assert not bucket.owes_too_much(2.0)


def test_over_any_time_nobody_gets_more_than_its_rate_and_what_was_lent() -> None:
    """Blocks of any size, begun whenever something is left, as nodes do it."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    for _ in range(50):
        rate, now, spent = rng.randint(1, 10_000), 0.0, 0
        bucket = TokenBucket(rate, now)
        largest = rng.randint(1, 2 * rate)
        for _ in range(200):
            now += rng.expovariate(1.0)
            if bucket.left(now) >= 1.0:
                count = rng.randint(1, largest)
                bucket.spend(count, now)
                spent += count
            assert spent <= rate + now * rate / MINUTE + largest, f"seed {seed}"

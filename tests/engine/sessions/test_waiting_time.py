"""When a generation that comes now could have its first token."""

from kakeya_fleet.engine.sessions.waiting_time import QueueLoad


def test_nobody_waits_where_nothing_does() -> None:
    assert QueueLoad().first_token_seconds(10_000, 64) == 0.0
    assert QueueLoad(0, 4.0, 0.1).first_token_seconds(10_000, 64) == 0.0
    assert QueueLoad(100).first_token_seconds(0, 64) == 0.0, "before a forward was timed"


def test_each_turn_waits_for_those_before_it() -> None:
    load = QueueLoad(waiting_turns=8, turns_a_batch=4.0, batch_seconds=0.1)
    assert round(load.turn_seconds(), 9) == 0.3
    assert round(load.first_token_seconds(0, 64), 9) == 0.3
    # Two chunks of the prompt, and the token.
    assert round(load.first_token_seconds(65, 64), 9) == 0.9


def test_the_latest_forwards_count() -> None:
    load = QueueLoad(waiting_turns=1)
    for _ in range(30):
        load = load.after_batch(2, 0.5)
    assert (round(load.turns_a_batch, 6), round(load.batch_seconds, 6)) == (2.0, 0.5)
    for _ in range(30):
        load = load.after_batch(1, 0.1)
    assert round(load.batch_seconds, 2) == 0.1
    assert load.after_batch(0, 9.0) == load

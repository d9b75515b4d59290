"""Ctrl-C as an exception."""

from __future__ import annotations

import signal
import time
import weakref

import pytest

from kakeya_fleet.node.cli.terminal import interrupt
from kakeya_fleet.node.cli.terminal.interrupt import interrupts_raised


class _Referred:
    """What a weak reference can be to."""


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    "again_seconds", [interrupt.AGAIN_SECONDS, 1e-6], ids=["", "on busy cores"]
)
def test_an_interrupt_that_meets_a_callback_of_a_weak_reference_is_not_lost(
    times: int, again_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where it is sent again before the callback has ended."""
    monkeypatch.setattr(interrupt, "AGAIN_SECONDS", again_seconds)
    left = [times]

    def interrupted(_reference: object) -> None:
        left[0] -= 1
        signal.raise_signal(signal.SIGINT)

    with interrupts_raised(), pytest.raises(KeyboardInterrupt):
        for _ in range(times):
            referred = _Referred()
            reference = weakref.ref(referred, interrupted)
            del referred
            assert reference() is None
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.001)
    assert left == [0]


def test_other_exceptions_of_finalizers_are_told_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[type[BaseException]] = []
    monkeypatch.setattr("sys.unraisablehook", lambda each: told.append(each.exc_type))

    def failing(_reference: object) -> None:
        raise ValueError

    with interrupts_raised():
        referred = _Referred()
        reference = weakref.ref(referred, failing)
        del referred
    assert reference() is None
    assert told == [ValueError]

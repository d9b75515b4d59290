"""How far a training is: rate and remaining time, on terminals and without."""

import sys

import pytest

from scripts.train.bar import TrainingBar, rate_text


def test_without_a_terminal_lines_come_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with TrainingBar(600, 100, line_every=50, clock=lambda: now[0]) as bar:
        for _ in range(100):
            now[0] += 0.1
            bar.advance()
        bar.say("loss 1.5")
    assert capsys.readouterr().out.splitlines() == [
        "step 150 of 600, 10 steps/s, 45 s left",
        "step 200 of 600, 10 steps/s, 40 s left",
        "loss 1.5",
    ]


def test_workers_that_do_not_lead_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingBar(10, 0, is_shown=False, line_every=1) as bar:
        bar.advance()
        bar.say("loss 1.5")
    assert capsys.readouterr().out == ""


def test_a_terminal_gets_a_bar_with_its_rate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with TrainingBar(10, 0) as bar:
        for _ in range(10):
            bar.advance()
    assert "10/10" in capsys.readouterr().out


def test_slow_steps_are_told_in_seconds() -> None:
    assert rate_text(0.25) == "4 s/step"
    assert rate_text(8.307) == "8.31 steps/s"
    assert rate_text(0.0) == ""

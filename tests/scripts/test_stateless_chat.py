"""The benchmark of stateless chats runs, and its sides say the same."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.bench import stateless_chat


def test_a_short_run(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    words = ["--rounds", "1", "--turns", "3", "--words", "8", "--tokens", "4", "--out", str(out)]
    assert stateless_chat.main(words) in (0, 1)
    report = json.loads(out.read_text())
    turns = report["first_token_seconds_by_turn"]
    assert {name: len(each) for name, each in turns.items()} == dict.fromkeys(
        stateless_chat.SIDES, 3
    )
    assert all(seconds > 0 for each in turns.values() for seconds in each)
    assert report["last_turn"]["http_to_session"] > 0

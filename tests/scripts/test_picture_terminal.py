"""Pictures of a terminal: what they are drawn of, and two of them recorded."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pyte
import pytest

from scripts.faults.machines import what_is_missing
from scripts.faults.mounts import why_no_homes
from scripts.plot.terminal_picture import FaintScreen, Transcript

ROOT = Path(__file__).resolve().parents[2]
LACKING = what_is_missing() or why_no_homes()
MOST_BYTES = 150_000
PICTURES = ROOT / "docs" / "pictures"


def text_of(picture: Path) -> str:
    """The words of a picture, a run of one look behind the other."""
    runs = re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text("utf-8"))
    return html.unescape("\n".join(runs)).replace("\xa0", " ")


def test_what_was_drawn_over_is_gone_and_looks_are_kept(tmp_path: Path) -> None:
    screen = FaintScreen(40, 6)
    pyte.Stream(screen).feed(
        "loading 10 %\rloaded       \r\n"
        "\x1b[2mfaint\x1b[0m \x1b[33mbrown\x1b[0m \x1b[38;5;2mgreen\x1b[0m"
    )
    line = Transcript(40)
    line.typed("mini-1$", "fleet status")
    line.shown(screen)
    line.save(tmp_path / "picture.svg", "fleet")
    words = text_of(tmp_path / "picture.svg").split()
    assert words == ["fleet", "mini-1$", "fleet", "status", "loaded", "faint", "brown", "green"]
    drawn = (tmp_path / "picture.svg").read_text("utf-8")
    looks = re.findall(r'<text class="picture-(r\d+)"[^>]*>(?:&#160;)*(?:faint|brown|green)', drawn)
    assert len(set(looks)) == len(looks) == 3


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.stem)
def test_recorded_pictures_load_nothing_and_are_small(picture: Path) -> None:
    drawn = picture.read_text("utf-8")
    assert len(drawn) < MOST_BYTES
    # A name of a format, and who made it: nothing that a reader fetches.
    assert not re.search(r"(?:href|src)=|url\([^#]|@import|@font-face|<script", drawn)


@pytest.mark.skipif(bool(LACKING), reason=LACKING)
@pytest.mark.timeout(240)
def test_two_machines_become_a_fleet_on_their_terminals(tmp_path: Path) -> None:
    # Its process stays in the namespaces that it makes.
    words = [sys.executable, "-m", "scripts.plot.picture_terminal", str(tmp_path)]
    words += ["--model", "tiny", "--only", "members", "plan"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    members, plan = (text_of(tmp_path / f"{name}.svg") for name in ("members", "plan"))
    assert re.search(r"fleet join \d{3}-\d{3}-\d{3} --name mini-2", members)
    assert "mini-2 is a member of the fleet home now" in members
    assert "tiny on mini-1 (192.168.1.21:7600)" in plan
    assert str(ROOT) not in members + plan

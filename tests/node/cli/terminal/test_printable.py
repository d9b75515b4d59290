import io
import re
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.node.cli.terminal.printable import on_one_line, printable
from kakeya_fleet.node.cli.terminal.screen_console import ScreenConsole
from kakeya_fleet.node.cli.terminal.tables import Cell, Column, ScreenTable, plain_table

STEERING = "\x1b[2J\x1b]0;title\x07\x9b1A\x08\x7f\r"
"""Clears the screen, retitles the window, goes up a line, back, and to its start."""
TURNED = "\u202egnp.exe\u2066"


@given(st.text())
def test_nothing_that_is_left_steers_a_terminal(text: str) -> None:
    controls = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
    assert not controls.search(printable(text))
    assert not re.search(r"[\n\t\u2028\u2029\u202a-\u202e\u2066-\u2069]", on_one_line(text))
    assert not controls.search(on_one_line(text))


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"))))
def test_what_people_write_stays(text: str) -> None:
    assert printable(text) == on_one_line(text) == text


def test_lines_and_emoji_of_several_characters_stay() -> None:
    answer = "a\n\tb \N{MAN}\u200d\N{WOMAN}"
    assert printable(answer) == answer


def test_a_cell_is_one_line_whatever_it_holds() -> None:
    columns = (Column("NODE"), Column("STATE"))
    rows: list[Sequence[Cell | str]] = [
        (f"mini{STEERING}", "alive"),
        (Cell(f"a\nforged  dead{TURNED}", ornament="●"), "dead"),
    ]
    lines = plain_table(columns, rows).splitlines()
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    screen = ScreenTable(columns, rows).lines(80)
    assert all(line.plain.isprintable() for line in screen)
    assert screen[-1].plain == "● a forged  deadgnp.exe  dead"


def test_a_console_prints_lines_without_what_steers_it() -> None:
    stream = io.StringIO()
    ScreenConsole(file=stream, highlight=False).print(f"mini{STEERING} is dead", markup=False)
    assert stream.getvalue() == "mini[2J]0;title1A is dead\n"

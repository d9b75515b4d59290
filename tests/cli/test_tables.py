import io

from rich.console import Console

from node.cli.tables import Cell, Column, memory_bar, plain_table, rich_table

COLUMNS = [Column("node"), Column("tokens", right=True)]
ROWS = [["mini-1", "7"], [Cell("a-long-name", style="red", ornament="██"), "1,024"]]


def test_plain_columns_are_aligned_and_carry_no_ornament():
    assert plain_table(COLUMNS, ROWS).splitlines() == [
        "node         tokens",
        "mini-1            7",
        "a-long-name   1,024",
    ]


def test_plain_lines_end_without_spaces():
    assert plain_table([Column("a"), Column("b")], [["x", ""]]).splitlines() == ["a  b", "x"]


def test_a_terminal_gets_the_ornament_and_the_same_words():
    screen = io.StringIO()
    Console(file=screen, width=80).print(rich_table(COLUMNS, ROWS, title="the fleet"))
    text = screen.getvalue()
    assert "██ a-long-name" in text
    for word in ("the fleet", "mini-1", "1,024", "tokens"):
        assert word in text


def test_cells_are_never_read_as_markup():
    screen = io.StringIO()
    Console(file=screen, width=80).print(rich_table(COLUMNS, [["[bold]x[/bold]", "1"]]))
    assert "[bold]x[/bold]" in screen.getvalue()


def test_memory_bars_are_as_full_as_the_memory():
    assert memory_bar(0, 8, width=8) == "░" * 8
    assert memory_bar(4, 8, width=8) == "████░░░░"
    assert memory_bar(8, 8, width=8) == "█" * 8
    assert memory_bar(9, 8, width=8) == "█" * 8
    assert memory_bar(0, 0, width=3) == "···"

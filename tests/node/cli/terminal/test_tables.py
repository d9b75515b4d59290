import io
from collections.abc import Sequence

from rich.console import Console

from kakeya_fleet.node.cli.terminal.folding import HANGING
from kakeya_fleet.node.cli.terminal.tables import Cell, Column, ScreenTable, memory_bar, plain_table

COLUMNS = [Column("node"), Column("tokens", right=True)]
ROWS: list[Sequence[Cell | str]] = [
    ["mini-1", "7"],
    [Cell("a-long-name", style="red", ornament="██"), "1,024"],
]


def test_plain_columns_are_aligned_and_carry_no_ornament() -> None:
    assert plain_table(COLUMNS, ROWS).splitlines() == [
        "node         tokens",
        "mini-1            7",
        "a-long-name   1,024",
    ]


def test_plain_lines_end_without_spaces() -> None:
    assert plain_table([Column("a"), Column("b")], [["x", ""]]).splitlines() == ["a  b", "x"]


def test_a_terminal_gets_the_ornament_and_the_same_words() -> None:
    screen = io.StringIO()
    Console(file=screen, width=80).print(ScreenTable(COLUMNS, ROWS, "the fleet"))
    text = screen.getvalue()
    assert "██ a-long-name" in text
    for word in ("the fleet", "mini-1", "1,024", "tokens"):
        assert word in text


def test_cells_are_never_read_as_markup() -> None:
    screen = io.StringIO()
    Console(file=screen, width=80).print(ScreenTable(COLUMNS, [["[bold]x[/bold]", "1"]]))
    assert "[bold]x[/bold]" in screen.getvalue()


NODES = [
    Column("node"),
    Column("serves", folds=1),
    Column("memory", folds=2),
    Column("address", folds=3),
]
NODE = ["attic-box", "verifier=Qwen3-Coder-30B-4bit, proposer=ngram", "-", "192.168.178.20:7600"]


def shown(width: int) -> list[str]:
    return [line.plain for line in ScreenTable(NODES, [NODE]).lines(width)][2:]


def test_a_line_that_is_too_long_gives_whole_columns_to_lines_below() -> None:
    assert len(shown(100)) == 1
    assert shown(60) == [
        "attic-box  -       192.168.178.20:7600",
        "  serves verifier=Qwen3-Coder-30B-4bit, proposer=ngram",
    ]


def test_no_width_breaks_an_address_or_a_name() -> None:
    longest = max(len(word) for text in NODE for word in text.split())
    for width in range(1, 100):
        lines = shown(width)
        words = " ".join(lines).split()
        for text in NODE:
            assert all(part in words for part in text.split() if part != "-"), lines
        assert max(map(len, lines)) <= max(width, longest + 2 * HANGING), lines


def test_memory_bars_are_as_full_as_the_memory() -> None:
    assert memory_bar(0, 8, width=8) == "░" * 8
    assert memory_bar(4, 8, width=8) == "████░░░░"
    assert memory_bar(8, 8, width=8) == "█" * 8
    assert memory_bar(9, 8, width=8) == "█" * 8
    assert memory_bar(0, 0, width=3) == "···"

"""The documents' numbers are those of the reports, all of them; and what the check would miss."""

import json
import re
from pathlib import Path

import pytest

from scripts.write.figures import DECLARED, faults
from scripts.write.figures_register import (
    FIGURES,
    README,
    FigureDiffers,
    Said,
    Table,
    report,
    unreported,
)

ROOT = Path(__file__).resolve().parents[2]

REPORTS = sorted((ROOT / "benchmarks").glob("*.json"))


def test_every_number_of_the_documents_is_its_reports() -> None:
    assert list(faults(DECLARED)) == []


def test_every_row_of_the_readmes_table_is_measured_by_a_report() -> None:
    text = (ROOT / README).read_text()
    table = text[text.index("\n## Figures") :]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    spans = [each.check(text) for each in DECLARED if each.document == README]
    assert len(rows) >= 14
    for row in rows:
        begin = text.index(row)
        column = text.index(" | ", begin), begin + len(row)
        assert any(first < column[1] and last > column[0] for first, last in spans), row


def test_every_report_is_read_and_linked_and_names_a_script_that_is_there() -> None:
    used = {each.report for each in DECLARED}
    text = (ROOT / FIGURES).read_text()
    for path in REPORTS:
        assert path.stem in used, f"nothing says what {path.name} measured"
        assert f"benchmarks/{path.name})" in text
        commands = re.findall(r"python -m scripts\.([\w.]+)", path.read_text())
        assert commands, path.name
        for name in commands:
            assert (ROOT / "scripts" / f"{name.replace('.', '/')}.py").is_file(), (
                f"{path.name}: {name}"
            )


@pytest.fixture
def said() -> Said:
    words = "takes {} ms, {} at most"
    return Said(FIGURES, words, "generation", lambda found: ["12", f"{found['rounds']:,}"])


def test_a_number_that_is_not_the_reports_is_told_and_written(said: Said) -> None:
    rounds = f"{report('generation')['rounds']}"
    wrong = "It takes 13\nms, 9,999 at most."
    with pytest.raises(FigureDiffers, match=r"says \['13', '9,999'\] where generation.json"):
        said.check(wrong)
    right = said.written(wrong)
    assert right == f"It takes 12\nms, {rounds} at most."
    said.check(right)
    with pytest.raises(FigureDiffers, match="has 0 times"):
        said.check("It takes long.")
    with pytest.raises(FigureDiffers, match="has 2 times"):
        said.check(right * 2)


def test_a_table_is_its_reports_to_the_last_row() -> None:
    table = Table(FIGURES, "| a | b |", "generation", lambda _: ["| 1 | 2 |", "| 3 | 4 |"])
    right = "Before.\n\n| a | b |\n|---|---:|\n| 1 | 2 |\n| 3 | 4 |\n\nAfter, 5.\n"
    table.check(right)
    for wrong in (
        right.replace("| 3 | 4 |\n", ""),
        right.replace("| 4 |", "| 4 |\n| 5 | 6 |"),
        right.replace("| 3 | 4 |", "| 3 | 7 |"),
    ):
        with pytest.raises(FigureDiffers):
            table.check(wrong)
        assert table.written(wrong) == right


def test_a_number_without_a_report_and_a_setting_that_is_gone_are_told(said: Said) -> None:
    rounds = f"{report('generation')['rounds']}"
    text = f"It takes 12 ms, {rounds} at most, in `run --times 7`; sink 4. Or 8 times.\n"
    found = list(unreported(FIGURES, text, [said], ["sink 4", "window 64"]))
    assert [words for words in found if "Or 8 times" in words]
    assert [words for words in found if "window" in words and "64" in words]
    assert len(found) == 2


def test_of_the_readme_its_figures_count(said: Said) -> None:
    text = "# A\n\n12 years.\n\n## Figures\n\n| a | 7 |\n\n## B\n\n9 lives.\n"
    (found,) = unreported(README, text, [said], [])
    assert "| a | 7 |" in found
    assert not list(unreported(README, text.replace("7", "seven"), [said], []))


def test_reports_are_whole() -> None:
    for path in REPORTS:
        assert isinstance(json.loads(path.read_bytes()), dict)

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from kakeya_fleet.node.cli.asking.form_options import AnswerForm, form_options


@click.command()
@form_options
def command(*, form: AnswerForm) -> int:
    click.echo(repr(form))
    return 0


def run(*words: str) -> Result:
    return CliRunner().invoke(command, words)


def test_each_option_reaches_its_field(tmp_path: Path) -> None:
    file = tmp_path / "form"
    file.write_text('{"const": "é"}', "utf-8")
    given = {
        (): AnswerForm(),
        ("--regex", "a+"): AnswerForm(regex="a+"),
        ("--json-schema", str(file)): AnswerForm(json_schema='{"const": "é"}'),
        ("--lark", str(file)): AnswerForm(lark='{"const": "é"}'),
    }
    for words, form in given.items():
        assert run(*words).output.strip() == repr(form)


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot be read"), (b"\xff", "not UTF-8"), (b" \n", "is empty")],
)
def test_a_file_that_says_nothing_is_named(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    file = tmp_path / "form"
    if content is not None:
        file.write_bytes(content)
    done = run("--json-schema", str(file))
    assert done.exit_code == 2
    assert says in done.output


def test_an_answer_has_one_form(tmp_path: Path) -> None:
    file = tmp_path / "form"
    file.write_text("start: A")
    done = run("--lark", str(file), "--regex", "a")
    assert done.exit_code == 2
    assert "one of --regex and --lark" in done.output

import os
import re
import resource
import subprocess
import sys

import click
import pytest

from kakeya_fleet.node.cli.shell.dispatch import COMMANDS
from kakeya_fleet.node.cli.shell.lazy_group import LazyCommand, LazyGroup

SLOW = ("torch", "transformers", "grpc", "rich", "numpy", "tokenizers", "kakeya", "asyncio")


def test_help_answers_within_three_tenths_of_a_second(fleet) -> None:
    """Of the processor's time: other processes on the same cores are not its doing."""
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert fleet.run("--help").code == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(seconds) < 0.3, seconds


def test_help_imports_nothing_slow() -> None:
    program = (
        "import sys; from kakeya_fleet.node.cli.main import run; code = run(['--help'])\n"
        f"print('LOADED', [name for name in {SLOW!r} if name in sys.modules])\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "LOADED []" in done.stdout


@pytest.mark.parametrize("line", ["fleet ", "fleet status --", "fleet generate --kv "])
def test_completing_words_that_are_fixed_imports_nothing_slow(line) -> None:
    program = (
        "import sys; from kakeya_fleet.node.cli.main import run; code = run([sys.argv[1]])\n"
        f"print('LOADED', [name for name in {SLOW!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, line],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"_FLEET_COMPLETE": "bash"},
    )
    assert done.stdout.startswith("plain\t")
    assert "LOADED []" in done.stdout


def test_help_lists_every_command_in_the_order_of_a_first_use(fleet) -> None:
    out = fleet.run("--help").out
    places = [out.index(f"\n  {name} ") for name in COMMANDS]
    assert places == sorted(places)
    assert "Exit codes:" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_json_and_help_in_full_sentences(fleet, name) -> None:
    done = fleet.run(name, "--help")
    assert done.code == 0
    assert re.search(rf"Example:\n( +.*\n)?.*fleet {name}", done.out), done.out
    assert "--json" in done.out
    assert not re.search(r"^ +--\S+( [A-Z]\S*)?$(?!\n {10,})", done.out, re.M), (
        "an option is silent"
    )


def test_the_summary_of_every_command_is_that_of_its_own_help() -> None:
    for name, lazy in COMMANDS.items():
        command = LazyGroup(commands_by_name=COMMANDS).get_command(
            click.Context(click.Group()), name
        )
        assert command is not None
        assert command.help, name
        assert len(lazy.summary) < 70


def test_a_table_that_points_at_no_command_is_a_defect_of_the_program() -> None:
    group = LazyGroup(
        commands_by_name={"x": LazyCommand("kakeya_fleet.node.cli.shell.failure", "x")}
    )
    with pytest.raises(AttributeError):
        group.get_command(click.Context(click.Group()), "x")


def test_without_a_command_the_help_is_shown_as_wrong_usage(fleet) -> None:
    done = fleet.run()
    assert done.code == 2
    assert "Commands:" in done.out


def test_the_version_is_that_of_the_distribution(fleet) -> None:
    assert re.fullmatch(r"fleet \d+\.\d+\.\d+\n", fleet.run("--version").out)

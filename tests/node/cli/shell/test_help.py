"""`fleet --help` and its like: at once, and in full sentences."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import click
import pytest

from kakeya_fleet.node.cli.shell.dispatch import COMMANDS
from kakeya_fleet.node.cli.shell.lazy_group import LazyCommand, LazyGroup
from tests.support.commands import Terminal

SLOW = ("torch", "transformers", "grpc", "rich", "numpy", "tokenizers", "kakeya", "asyncio")
LIGHT = f"""
import os, sys
from kakeya_fleet.node.cli.main import run
codes = [run(["--help"])]
os.environ["_FLEET_COMPLETE"] = "bash"
for line in ("fleet ", "fleet status --", "fleet generate --kv "):
    print("LINE")
    codes.append(run([line]))
print("LOADED", [name for name in {SLOW!r} if name in sys.modules])
sys.exit(any(codes))
"""


def test_help_and_completing_words_that_are_fixed_import_nothing_slow() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={name: value for name, value in os.environ.items() if name != "_FLEET_COMPLETE"},
    )
    assert "LOADED []" in done.stdout
    assert done.stdout.count("LINE\nplain\t") == 3


def test_help_lists_every_command_in_the_order_of_a_first_use(fleet: Terminal) -> None:
    out = fleet.run("--help").out
    places = [out.index(f"\n  {name} ") for name in COMMANDS]
    assert places == sorted(places)
    assert "Exit codes:" in out
    bare = fleet.run()
    assert (bare.code, "Commands:" in bare.out) == (2, True)
    assert re.fullmatch(r"fleet \d+\.\d+\.\d+\n", fleet.run("--version").out)


def test_every_command_has_an_example_json_and_help_in_full_sentences(fleet: Terminal) -> None:
    silent_option = re.compile(r"^ +--\S+( [A-Z]\S*)?$(?!\n {10,})", re.M)
    for name, lazy in COMMANDS.items():
        done = fleet.run(name, "--help")
        assert done.code == 0, name
        assert re.search(rf"Example:\n( +.*\n)?.*fleet {name}", done.out), done.out
        assert "--json" in done.out, name
        assert not silent_option.search(done.out), done.out
        assert len(lazy.summary) < 70, name


def test_a_table_that_points_at_no_command_is_a_defect_of_the_program() -> None:
    group = LazyGroup(
        commands_by_name={"x": LazyCommand("kakeya_fleet.node.cli.shell.failure", "x")}
    )
    with pytest.raises(AttributeError):
        group.get_command(click.Context(click.Group()), "x")

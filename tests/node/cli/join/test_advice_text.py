"""The hint after a join: commands that work where they are to be typed."""

import shlex
from collections.abc import Mapping, Sequence

import pytest

from kakeya_fleet.node.cli.join.advice_text import advice_lines
from kakeya_fleet.node.cli.join.command import command
from kakeya_fleet.node.config.config import Config, build

ADVICE = {
    "event": "advice",
    "lacks": "proposer",
    "verifier": "tiny",
    "free_name": "mini-2",
    "address": "127.0.0.1:7600",
    "fleet_name": "default",
}


def join_of(event: Mapping[str, object]) -> list[str]:
    """The words of the join that is proposed, without `fleet join`."""
    (line,) = (line for line in advice_lines(event) if line.startswith("  fleet join"))
    return shlex.split(line)[2:]


def configured(words: Sequence[str]) -> Config:
    """The configuration that `fleet join WORDS` starts a node with."""
    given = command.make_context("join", list(words)).params
    flags = {key: value for key, value in given.items() if value not in (None, (), False)}
    return build(flags, {})


def test_on_this_machine_the_next_node_is_started_in_another_terminal() -> None:
    text = "\n".join(advice_lines(ADVICE))
    assert "next, in another terminal, a proposer" in text
    assert "fleet join --name mini-2 --serve proposer=ngram --peer 127.0.0.1:7600" in text
    assert 'fleet generate --verifier tiny "def parse_header(line):" --node 127.0.0.1:7600' in text
    assert "fleet chat --verifier tiny" in text


@pytest.mark.parametrize(
    ("address", "bind"),
    [
        ("127.0.0.1:7600", "127.0.0.1:auto"),
        ("[::1]:7600", "127.0.0.1:auto"),
        ("192.168.1.20:7600", "0.0.0.0:auto"),
        ("[fd00::1]:7600", "[::]:auto"),
    ],
)
@pytest.mark.parametrize("fleet_name", ["default", "at home"])
def test_what_is_printed_is_a_join_that_is_not_refused_and_of_this_fleet(
    address: str, bind: str, fleet_name: str
) -> None:
    words = join_of(ADVICE | {"address": address, "fleet_name": fleet_name})
    config = configured(words)
    assert (config.peers, config.bind, config.fleet_name) == ((address,), bind, fleet_name)


def test_beyond_loopback_it_is_for_the_other_machine() -> None:
    text = "\n".join(advice_lines(ADVICE | {"address": "192.168.1.20:7600"}))
    assert "next, on the other machine, a proposer" in text


@pytest.mark.parametrize(
    ("lacks", "serve"),
    [("verifier", "verifier=tiny"), ("archive", "archive=512MiB")],
)
def test_what_the_fleet_lacks_is_what_is_proposed(lacks: str, serve: str) -> None:
    assert serve in join_of(ADVICE | {"lacks": lacks})


def test_of_a_whole_fleet_a_first_answer_is_proposed() -> None:
    text = "\n".join(advice_lines(ADVICE | {"lacks": "", "verifier": "/models/my model"}))
    assert "fleet join" not in text
    assert "fleet generate --verifier '/models/my model' " in text


def test_without_a_verifier_nothing_can_be_generated() -> None:
    text = "\n".join(advice_lines(ADVICE | {"lacks": "verifier", "verifier": ""}))
    assert "fleet generate" not in text

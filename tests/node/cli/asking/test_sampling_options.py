import click
import pytest
from click.testing import CliRunner, Result

from kakeya_fleet.node.cli.asking.sampling_options import Sampling, sampling_options


@click.command()
@sampling_options
@click.option("--other", default=0)
def command(other: int, *, sampling: Sampling) -> int:
    click.echo(repr((sampling, other)))
    return 0


def run(*words: str) -> Result:
    return CliRunner().invoke(command, words)


def test_without_options_nothing_is_shaped() -> None:
    assert run().output.strip() == repr((Sampling(), 0))


def test_every_option_reaches_its_field() -> None:
    words = "--temperature 0.5 --top-p 0.25 --top-k 3 --min-p 0.125 --repetition-penalty 1.5"
    more = "--logit-bias 7=-2.5 --logit-bias 9=-inf --seed 4 --other 2"
    penalties = "--frequency-penalty 0.5 --presence-penalty -1.5"
    given = Sampling(0.5, 0.25, 3, 0.125, 1.5, {7: -2.5, 9: -float("inf")}, 4, 0.5, -1.5)
    assert run(*words.split(), *more.split(), *penalties.split()).output.strip() == repr((given, 2))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--logit-bias 5", "ID=VALUE"),
        ("--logit-bias five=1", "ID=VALUE"),
        ("--logit-bias -5=1", "ids begin at 0"),
        ("--logit-bias 5=nan", "-inf to ban"),
        ("--logit-bias 5=inf", "-inf to ban"),
        ("--logit-bias 5=10001", "-inf to ban"),
        ("--logit-bias 5=1 --logit-bias 5=2", "twice"),
        ("--min-p 1.1", "0<=x<=1"),
        ("--repetition-penalty 0", "<=x<=64"),
        ("--frequency-penalty 2.5", "-2<=x<=2"),
        ("--presence-penalty -2.5", "-2<=x<=2"),
    ],
)
def test_what_no_node_takes_is_said_here(words: str, says: str) -> None:
    done = run(*words.split())
    assert done.exit_code == 2
    assert says in done.output

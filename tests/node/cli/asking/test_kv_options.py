import click
import pytest
from click.testing import CliRunner, Result

from kakeya_fleet.node.cli.asking.kv_options import KvChoice, kv_options


@click.command()
@kv_options
@click.option("--other", default=0)
def command(other: int, *, kv: KvChoice) -> int:
    click.echo(repr((kv, other)))
    return 0


def run(*words: str) -> Result:
    return CliRunner().invoke(command, words)


def test_without_options_the_node_decides() -> None:
    assert run().output.strip() == repr((KvChoice(), 0))


def test_every_option_reaches_its_field() -> None:
    words = "--kv restored --sink 2 --window 64 --restorer projection --restorer-model drafter"
    given = KvChoice("restored", 2, 64, "projection", "drafter", "mini-2")
    result = run(*words.split(), "--restorer-node", "mini-2", "--other", "2")
    assert result.output.strip() == repr((given, 2))
    assert run("--kv-strategy", "full").output.strip() == repr((KvChoice("full"), 0))
    packed = KvChoice("full", quality="high", quality_when_short="economy")
    result = run("--kv", "full", "--kv-quality", "high", "--kv-quality-when-short", "economy")
    assert result.output.strip() == repr((packed, 0))
    assert packed.options("")["kv_quality_when_short"] == "economy"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--restorer archive", "needs --kv restored"),
        ("--kv full --restorer-node a", "needs --kv restored"),
        ("--kv restored --restorer-model a", "needs --restorer projection"),
        ("--kv restored --restorer identity --restorer-node a", "own process"),
        ("--kv restored --restorer magic", "'archive', 'projection', 'identity'"),
        ("--kv-quality high", "needs --kv restored or --kv full"),
        ("--kv restored --kv-quality-when-short high", "needs --kv full"),
        ("--kv full --kv-quality-when-short lossless", "'high', 'economy'"),
        ("--kv restored --window 0", "1<=x<=4294967295"),
        ("--kv restored --sink 4294967296", "0<=x<=4294967295"),
    ],
)
def test_what_cannot_be_together_is_refused(words: str, says: str) -> None:
    result = run(*words.split())
    assert result.exit_code == 2
    assert says in result.output

"""`fleet run`: a model by its name, loaded where it fits best, and an answer or a chat."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.known_names import complete_nodes, complete_runnable
from kakeya_fleet.node.cli.asking.kv_options import kv_options
from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.asking.sampling_options import max_tokens_option, sampling_options

if TYPE_CHECKING:
    from kakeya_fleet.node.cli.asking.kv_options import KvChoice
    from kakeya_fleet.node.cli.asking.sampling_options import Sampling

EXAMPLE = """\b
Example:
  fleet run smollm2
  fleet run smollm2 "Why is the sky blue?"
  fleet run smollm2 "Summarise this." < letter.txt
  fleet run ./models/mistral.gguf --weights int4 --on mini-2
"""


@click.command("run", epilog=EXAMPLE)
@click.argument("model", shell_complete=complete_runnable)
@click.argument("prompt", nargs=-1, metavar="[PROMPT]")
@click.option(
    "--on",
    "home",
    metavar="NAME",
    default="",
    shell_complete=complete_nodes,
    help="Node that loads the model. Default: the one where it fits best.",
)
@click.option(
    "--weights",
    type=click.Choice(["auto", "bf16", "int8", "int4"]),
    help="What its products take its weights as, if it is loaded. Default: what the node was "
    "started with.",
)
@click.option(
    "--start",
    is_flag=True,
    help="Where no node runs on this machine, start one for as long as this takes. At a terminal "
    "it is asked.",
)
@click.option("--system", default="", metavar="TEXT", help="What the system says before all else.")
@click.option("--show-drafted", is_flag=True, help="Colour what the proposer drafted.")
@max_tokens_option(2048)
@sampling_options
@kv_options
@node_option
@json_option
def command(  # noqa: PLR0913 - one parameter an option
    model: str,
    prompt: tuple[str, ...],
    home: str,
    weights: str | None,
    system: str,
    max_tokens: int,
    node: str | None,
    *,
    start: bool,
    kv: KvChoice,
    sampling: Sampling,
    show_drafted: bool,
    as_json: bool,
) -> int:
    """Talk with MODEL, or have it answer PROMPT; what is piped in is a prompt, too.

    MODEL is what `fleet join --serve verifier=` takes. If no node serves it, one is told to load
    it: of those that may, the fastest, or the one with most room, and it is said why. It stays
    loaded. Where nobody drafts for it, a proposer is loaded beside it. A model without a chat
    template has its turns joined plainly.
    """
    from kakeya_fleet.node.cli.asking.failures import told_as_failures
    from kakeya_fleet.node.cli.asking.tokenizer import model_id_of
    from kakeya_fleet.node.cli.chat.given_text import GivenText
    from kakeya_fleet.node.cli.chat.loop import ChatOptions, chat
    from kakeya_fleet.node.cli.chat.screen import ChatScreen
    from kakeya_fleet.node.cli.chat.session import AnswerLimits
    from kakeya_fleet.node.cli.fleet.model_names import name_to_load
    from kakeya_fleet.node.cli.run.given_prompt import given_prompt
    from kakeya_fleet.node.cli.run.serving import Wanted, serving
    from kakeya_fleet.node.cli.terminal.interrupt import interrupts_raised
    from kakeya_fleet.node.cli.terminal.output import has_colours

    text = given_prompt(prompt)
    model_id = model_id_of(model)
    options = ChatOptions(
        verifier=model_id,
        system=system,
        is_plain=None,
        tokenizer=None,
        kv=kv,
        limits=AnswerLimits(sampling, max_tokens),
    )
    screen = ChatScreen(
        as_json=as_json, has_colours=has_colours(sys.stdout), tints_drafted=show_drafted
    )
    with ExitStack() as stack:
        asked, stays = _address(node, stack, starts=start, as_json=as_json, model=model)
        wanted = Wanted(model, name_to_load(model), model_id, weights or "", home, stays)
        address = serving(asked, wanted, as_json=as_json)
        with told_as_failures(), interrupts_raised():
            return chat(address, options, screen, GivenText(text) if text else None)


def _address(
    node: str | None, stack: ExitStack, *, starts: bool, as_json: bool, model: str
) -> tuple[str, bool]:
    """The node that is asked, and whether it stays.

    Where none runs here it is one that is started until `stack` is left. Raises `CommandFailed`.
    """
    from kakeya_fleet.node.cli.asking.asked_node import asked_address
    from kakeya_fleet.node.cli.asking.local_agents import agents_here, starting_here
    from kakeya_fleet.node.cli.run.own_agent import OwnAgent
    from kakeya_fleet.node.cli.shell.failure import CommandFailed
    from kakeya_fleet.node.cli.terminal.output import note

    if node is not None or agents_here() or starting_here():
        return asked_address(node), True
    if not (starts or _person_wants_one(as_json=as_json)):
        raise CommandFailed(
            "NO_LOCAL_NODE",
            f"no node runs on this machine: `fleet run {model} --start` starts one for as long as "
            f"it takes, `fleet join --serve verifier={model} --serve proposer=ngram` one that "
            "stays.",
        )
    if not as_json:
        note("starting a node, which ends with this command")
    return stack.enter_context(OwnAgent()).address(), False


def _person_wants_one(*, as_json: bool) -> bool:
    """Asks at a terminal; no where nobody could answer."""
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write("no node runs on this machine; start one for as long as this takes? [Y/n] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")

"""`fleet chat`: a conversation over one session."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.kv_options import kv_options
from kakeya_fleet.node.cli.asking.options import (
    json_option,
    node_option,
    tokenizer_option,
    verifier_option,
)
from kakeya_fleet.node.cli.asking.sampling_options import max_tokens_option, sampling_options

if TYPE_CHECKING:
    from kakeya_fleet.node.cli.asking.kv_options import KvChoice
    from kakeya_fleet.node.cli.asking.sampling_options import Sampling

EXAMPLE = """\b
Example:
  fleet chat --verifier smollm2
  fleet chat --verifier Qwen/Qwen3-0.6B --system "Answer in one sentence." --show-drafted
  fleet chat --plain --verifier tiny --temperature 0.8
  printf 'first question\\nsecond question\\n' | fleet chat

\b
In the chat: /stats /fork /sessions /undo /retry /edit /system /save /help /quit
"""


@click.command("chat", epilog=EXAMPLE)
@verifier_option(required=False)
@click.option("--system", default="", metavar="TEXT", help="What the system says before all else.")
@click.option(
    "--plain", is_flag=True, help="Join the turns plainly: for a model without a chat template."
)
@click.option("--show-drafted", is_flag=True, help="Colour what the proposer drafted.")
@max_tokens_option(2048)
@sampling_options
@kv_options
@tokenizer_option
@node_option
@json_option
def command(  # noqa: PLR0913 - one parameter an option
    verifier: str | None,
    system: str,
    max_tokens: int,
    tokenizer: str | None,
    node: str | None,
    *,
    kv: KvChoice,
    sampling: Sampling,
    plain: bool,
    show_drafted: bool,
    as_json: bool,
) -> int:
    """Talk with a model over one session.

    Each turn appends its own tokens alone. A verifier that dies is replaced by
    another that serves the same weights. Without a terminal on stdin, a line is a turn.
    """
    from kakeya_fleet.node.cli.asking.asked_node import asked_address
    from kakeya_fleet.node.cli.asking.failures import told_as_failures
    from kakeya_fleet.node.cli.chat.loop import ChatOptions, chat
    from kakeya_fleet.node.cli.chat.screen import ChatScreen
    from kakeya_fleet.node.cli.chat.session import AnswerLimits
    from kakeya_fleet.node.cli.terminal.interrupt import interrupts_raised
    from kakeya_fleet.node.cli.terminal.output import has_colours

    screen = ChatScreen(
        as_json=as_json, has_colours=has_colours(sys.stdout), tints_drafted=show_drafted
    )
    options = ChatOptions(
        verifier=verifier,
        system=system,
        is_plain=plain,
        tokenizer=tokenizer,
        kv=kv,
        limits=AnswerLimits(sampling, max_tokens),
    )
    with told_as_failures(), interrupts_raised():
        return chat(asked_address(node), options, screen)

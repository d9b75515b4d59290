"""The sessions of a chat: one conversation each, one of them gone on with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kakeya import GenerationDone, Session, Tokens
from kakeya.conversation import Conversation
from kakeya_fleet.node.cli.asking.prefill import pieces
from kakeya_fleet.node.cli.asking.sampling_options import Sampling
from kakeya_fleet.node.cli.terminal.status_line import StatusLine


@dataclass(slots=True)
class Branch:
    """A session and the conversation that it holds; `done` is its latest answer's end."""

    number: int
    session: Session
    conversation: Conversation
    done: GenerationDone | None = None
    told_resumptions: int = 0
    told_forgotten: bool = False


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """How an answer is made, at most `max_tokens` long."""

    sampling: Sampling
    max_tokens: int


def ask(
    branch: Branch,
    text: str,
    limits: AnswerLimits,
    line: StatusLine | None,
    on_tokens: Callable[[Tokens], None],
) -> GenerationDone | None:
    """Adds the question and hands the answer to `on_tokens` as it comes.

    Returns the end; None when Ctrl-C stopped the answer: what came stays in the
    conversation. Raises `KakeyaError`, and KeyboardInterrupt before the answer began,
    both with the question taken back.
    """
    session, conversation = branch.session, branch.conversation
    history = session.history
    turn = conversation.ask(text, history)
    try:
        if turn.keep < len(history):
            session.rewind(turn.keep)
        for piece in pieces(turn.append, line):
            if piece:
                session.append(piece)
    except BaseException:
        conversation.take_back()
        raise
    branch.done = None
    length = session.history_length
    try:
        branch.done = _generate(session, limits, on_tokens)
    except KeyboardInterrupt:
        if session.history_length == length:
            conversation.take_back()
            raise
    except BaseException:
        if session.history_length == length:
            conversation.take_back()
        else:
            conversation.answered(session.history[length:])
        raise
    conversation.answered(session.history[length:])
    return branch.done


def _generate(
    session: Session, limits: AnswerLimits, on_tokens: Callable[[Tokens], None]
) -> GenerationDone | None:
    generation = session.generate(limits.max_tokens, **limits.sampling.options())
    with generation:
        for tokens in generation:
            on_tokens(tokens)
    return generation.done


def statistics_of(branch: Branch) -> list[str]:
    """The session and its latest answer, line by line. Raises `KakeyaError`."""
    from kakeya_fleet.node.cli.fleet.plan_text import pair_text
    from kakeya_fleet.node.cli.terminal.quantities import bytes_text
    from kakeya_fleet.node.cli.terminal.statistics_text import statistics_lines

    session = branch.session
    info = session.info()
    lines = [
        f"session {branch.number} ({session.session_id[:12]}) on {session.address}: "
        f"{pair_text(session.plan)}",
        f"history {info.history_length:,} tokens, "
        f"{info.resident_token_count:,} resident, K/V {bytes_text(info.kv_bytes)} "
        f"({info.kv_strategy.value})",
    ]
    if branch.done is not None:
        lines += statistics_lines(branch.done, session.plan)
    else:
        lines.append("no answer came to its end yet")
    return lines

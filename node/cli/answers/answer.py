"""One answer of the fleet: a session, a prompt, the tokens as they commit, the end."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kakeya import (
    Alternative,
    AsyncClient,
    GenerateOptions,
    GenerationDone,
    Plan,
    SpeculationChoice,
    Tokens,
)
from kakeya_fleet.node.cli.asking.form_options import AnswerForm
from kakeya_fleet.node.cli.asking.kv_options import KvChoice
from kakeya_fleet.node.cli.asking.models import archive_node
from kakeya_fleet.node.cli.asking.prefill import pieces
from kakeya_fleet.node.cli.asking.sampling_options import Sampling
from kakeya_fleet.node.cli.asking.tokenizer import TextTokenizer, check_same
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode
from kakeya_fleet.node.cli.terminal.status_line import StatusLine

LABEL = "fleet"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: `model` continues `prompt` by at most `max_tokens` tokens.

    `top_log_probabilities` asks for log-probabilities with so many
    alternatives; None for none. The answer is held to `form`.
    """

    model: str
    prompt: str
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    kv: KvChoice = field(default_factory=KvChoice)
    stop_at_eos: bool = True
    top_log_probabilities: int | None = None
    form: AnswerForm = field(default_factory=AnswerForm)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came: ids, the end, the plan of the session, seconds as seen here.

    `log_probabilities` and `alternatives` are one item an id when asked for.
    """

    token_ids: tuple[int, ...]
    done: GenerationDone
    plan: Plan
    seconds: float
    log_probabilities: tuple[float, ...] = ()
    alternatives: tuple[tuple[Alternative, ...], ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of the ids, each as 4 bytes, little-endian; hexadecimal."""
        return digest_of(self.token_ids)


def digest_of(token_ids: Sequence[int]) -> str:
    """SHA-256 of ids, each as 4 bytes, little-endian; hexadecimal."""
    ids = b"".join(token_id.to_bytes(4, "little") for token_id in token_ids)
    return hashlib.sha256(ids).hexdigest()


async def answer(
    client: AsyncClient,
    question: Question,
    tokenizer: TextTokenizer,
    speculation: SpeculationChoice,
    *,
    on_plan: Callable[[Plan], None] | None = None,
    on_tokens: Callable[[Tokens], None] | None = None,
    line: StatusLine | None = None,
) -> Answer:
    """Asks the question in a session of its own; `line` shows how far a long prompt is.

    Raises `KakeyaError`, and `CommandFailed` for an empty prompt or when the
    served model has another tokenizer.
    """
    prompt_ids = tokenizer.encode(question.prompt)
    if not prompt_ids:
        raise CommandFailed(
            "EMPTY_PROMPT",
            "the prompt is empty: give at least one character.",
            exit_code=ExitCode.USAGE,
        )
    session = await client.create_session(
        question.model,
        **question.kv.options(await archive_node(client, question.kv.restorer_node)),
        stop_token_ids=tokenizer.stop_token_ids if question.stop_at_eos else (),
        speculation=speculation,
        client_label=LABEL,
    )
    async with session:
        check_same(tokenizer, session.model.tokenizer_digest, question.model)
        if on_plan is not None:
            on_plan(session.plan)
        for piece in pieces(prompt_ids, line):
            await session.append(piece)
        options: GenerateOptions = {
            **question.sampling.options(question.top_log_probabilities),
            **question.form.options(),
        }
        generation = session.generate(question.max_tokens, **options)
        blocks: list[Tokens] = []
        started = time.perf_counter()
        async for tokens in generation:
            blocks.append(tokens)
            if on_tokens is not None:
                on_tokens(tokens)
        seconds = time.perf_counter() - started
        done = generation.done
        if done is None:
            raise CommandFailed("UNEXPECTED_ERROR", "the node ended the answer without an end.")
        return Answer(
            token_ids=tuple(each for block in blocks for each in block.token_ids),
            done=done,
            plan=session.plan,
            seconds=seconds,
            log_probabilities=tuple(each for block in blocks for each in block.log_probabilities),
            alternatives=tuple(each for block in blocks for each in block.alternatives),
        )

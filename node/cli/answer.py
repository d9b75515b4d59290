"""One answer of the fleet: a session, a prompt, the tokens as they commit, the end."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kakeya import AsyncClient, GenerationDone, Plan, Tokens
from kakeya.client import SpeculationChoice
from node.cli.failure import CommandFailed
from node.cli.tokenizer import TextTokenizer, check_same

LABEL = "fleet"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; temperature 0 is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: `model` continues `prompt` by at most `max_tokens` tokens."""

    model: str
    prompt: str
    max_tokens: int
    sampling: Sampling = Sampling()
    kv_strategy: str = "sink_window"
    sink_tokens: int | None = None
    window_tokens: int | None = None
    stop_at_eos: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """What came: ids, the end, the plan of the session, seconds as seen here."""

    token_ids: tuple[int, ...]
    done: GenerationDone
    plan: Plan
    seconds: float

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
) -> Answer:
    """Asks the question in a session of its own.

    Raises `KakeyaError`, and `CommandFailed` for an empty prompt or when the
    served model has another tokenizer.
    """
    prompt_ids = tokenizer.encode(question.prompt)
    if not prompt_ids:
        raise CommandFailed("EMPTY_PROMPT", "the prompt is empty: give at least one character.")
    session = await client.create_session(
        question.model,
        kv_strategy=question.kv_strategy,
        sink_tokens=question.sink_tokens,
        window_tokens=question.window_tokens,
        stop_token_ids=tokenizer.stop_token_ids if question.stop_at_eos else (),
        speculation=speculation,
        label=LABEL,
    )
    async with session:
        check_same(tokenizer, session.model.tokenizer_digest, question.model)
        if on_plan is not None:
            on_plan(session.plan)
        await session.append(prompt_ids)
        sampling = question.sampling
        generation = session.generate(
            question.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=sampling.seed,
        )
        token_ids: list[int] = []
        started = time.perf_counter()
        async for tokens in generation:
            token_ids += tokens.token_ids
            if on_tokens is not None:
                on_tokens(tokens)
        seconds = time.perf_counter() - started
        done = generation.done
        if done is None:
            raise CommandFailed("UNEXPECTED_ERROR", "the node ended the answer without an end.")
        return Answer(tuple(token_ids), done, session.plan, seconds)

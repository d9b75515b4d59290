"""What a verifier promises, checked on one loaded model. Every check compares bits or tokens."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import transformers

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.verifier import Logits, Verifier
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn

SINK, WINDOW = 4, 16
RING = CacheSpec(CacheKind.SINK_WINDOW, sink=SINK, window=WINDOW)
LONG = 20 * (SINK + WINDOW)
"""Tokens of a history far past sink and window."""
PROMPT_TOKENS = 40
GREEDY_TOKENS = 200
DRAFTED_TOKENS = 60
BLOCK_SIZES = (1, 2, 3, 5, 8, 15)
SEEDED = SamplingParameters(temperature=0.9, top_p=0.95, seed=7)
TAIL = 12
"""Tokens run behind a rollback or a fork, whose logits are compared."""


def reference_greedy(folder: Path, vocabulary_size: int) -> list[int]:
    """The prompt and what transformers decodes after it, greedily, in float32."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config = transformers.GenerationConfig(pad_token_id=0)  # no end of text
    prompt = torch.tensor([history(PROMPT_TOKENS, vocabulary_size)])
    tokens: list[int] = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=GREEDY_TOKENS,
        do_sample=False,
    )[0].tolist()
    return tokens


def history(count: int, vocabulary_size: int, seed: int = 0) -> list[int]:
    """`count` random tokens."""
    rng = random.Random(seed)
    return [rng.randrange(vocabulary_size) for _ in range(count)]


def greedy_equals(verifier: Verifier, expected: Sequence[int]) -> bool:
    """Whether the full cache decodes `expected` behind its first `PROMPT_TOKENS`."""
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=len(expected))
    session = _session(verifier, spec, expected[:PROMPT_TOKENS])
    got = _stream(session, GREEDY, len(expected) - PROMPT_TOKENS, lambda _done: [])
    return got == list(expected[PROMPT_TOKENS:])


def speculation_is_exact(verifier: Verifier) -> bool:
    """Past the window: no draft of any size, right, half right or wrong, changes the stream."""
    size = verifier.info.vocabulary_size
    prompt = history(LONG, size)
    for parameters in (GREEDY, SEEDED):
        alone = _stream(
            _session(verifier, RING, prompt), parameters, DRAFTED_TOKENS, lambda _done: []
        )
        for block in BLOCK_SIZES:
            for right_share in (1.0, 0.5, 0.0):
                draft = _drafts(alone, block, right_share, size)
                session = _session(verifier, RING, prompt)
                if _stream(session, parameters, DRAFTED_TOKENS, draft) != alone:
                    return False
    return True


def _drafts(
    stream: Sequence[int], block: int, right_share: float, vocabulary_size: int
) -> Callable[[int], list[int]]:
    """Guesses `block` tokens of `stream` behind the first so many, each right with that share."""
    rng = random.Random(block)

    def draft(done: int) -> list[int]:
        return [
            token if rng.random() < right_share else (token + 1) % vocabulary_size
            for token in stream[done : done + block]
        ]

    return draft


def chunking_is_exact(verifier: Verifier) -> bool:
    """20 x (sink + window) tokens at once, one by one, and in random pieces: the same logits."""
    tokens = history(LONG, verifier.info.vocabulary_size)
    rng = random.Random(1)
    width = verifier.row_counts[-1]
    sizes: tuple[Callable[[], int], ...] = (lambda: width, lambda: 1, lambda: rng.randint(1, width))
    runs = [_logits(verifier, verifier.allocate(RING), tokens, size) for size in sizes]
    return all(run.tobytes() == runs[0].tobytes() for run in runs[1:])


def rollback_is_exact(verifier: Verifier) -> bool:
    """Past the window: a block cut off at each of its positions leaves nothing behind."""
    size, width = verifier.info.vocabulary_size, verifier.info.width
    tokens = history(LONG + width + TAIL, size)
    straight = verifier.allocate(RING)
    _logits(verifier, straight, tokens[:LONG], lambda: width)
    rows = _logits(verifier, straight, tokens[LONG:], lambda: 1)
    for kept in range(width + 1):
        cache = verifier.allocate(RING)
        _logits(verifier, cache, tokens[:LONG], lambda: width)
        right = tokens[LONG : LONG + kept]
        wrong = [(token + 1) % size for token in tokens[LONG + kept : LONG + width]]
        verifier.forward(cache, right + wrong, want_logits=True)
        cache.truncate(LONG + kept)
        behind = _logits(verifier, cache, tokens[LONG + kept :][:TAIL], lambda: 1)
        cache.release()
        if behind.tobytes() != rows[kept : kept + TAIL].tobytes():
            return False
    return True


def fork_is_exact(verifier: Verifier) -> bool:
    """Two forks of a history, both kinds of cache: each goes on as if it had been alone."""
    size = verifier.info.vocabulary_size
    tokens = history(LONG, size)
    for spec in (RING, CacheSpec(CacheKind.CONTIGUOUS, capacity=LONG + 2 * TAIL)):
        origin = verifier.allocate(spec)
        _logits(verifier, origin, tokens, lambda: verifier.info.width)
        shortest = max(1, origin.forkable_from)
        for length in sorted({shortest, origin.length - 1, origin.length}):
            tails = [history(TAIL, size, seed) for seed in (1, 2)]
            forks = [origin.fork(length) for _ in tails]
            # Token by token in turn, so that each writes while the other still shares.
            rows: list[list[Logits]] = [[], []]
            for step in range(TAIL):
                for fork, tail, own in zip(forks, tails, rows, strict=True):
                    own.append(_logits(verifier, fork, tail[step : step + 1], lambda: 1))
            for tail, own in zip(tails, rows, strict=True):
                alone = verifier.allocate(spec)
                _logits(verifier, alone, tokens[:length], lambda: verifier.info.width)
                expected = _logits(verifier, alone, tail, lambda: 1)
                alone.release()
                if np.concatenate(own).tobytes() != expected.tobytes():
                    return False
            for fork in forks:
                fork.release()
        origin.release()
    return True


CHECKS: dict[str, Callable[[Verifier], bool]] = {
    "speculation": speculation_is_exact,
    "chunking": chunking_is_exact,
    "rollback": rollback_is_exact,
    "fork": fork_is_exact,
}
"""Checks that need the verifier alone, by column."""


def _session(verifier: Verifier, spec: CacheSpec, prompt: Sequence[int]) -> Session:
    session = Session(verifier, verifier.allocate(spec))
    session.append(prompt)
    while PrefillTurn(session)():
        pass
    return session


def _stream(
    session: Session,
    parameters: SamplingParameters,
    count: int,
    draft: Callable[[int], list[int]],
) -> list[int]:
    """`count` generated tokens; `draft(done)` guesses those behind the first `done`."""
    tokens: list[int] = []
    while len(tokens) < count:
        guess = draft(len(tokens))
        tokens += VerifyTurn(
            session, Block(guess, parameters, count - len(tokens))
        )().step.committed
    session.end("closed")
    return tokens


def _logits(
    verifier: Verifier, cache: KvCache, tokens: Sequence[int], size: Callable[[], int]
) -> Logits:
    """The logits of `tokens`, committed in pieces of `size()`, as far as a forward takes."""
    rows: list[Logits] = []
    done = 0
    while done < len(tokens):
        piece = tokens[done : done + min(size(), cache.widest)]
        logits = verifier.forward(cache, piece, want_logits=True)
        if logits is None:
            raise TypeError("a verifier that was asked for logits gave none")
        rows.append(logits)
        done += len(piece)
    return np.concatenate(rows)

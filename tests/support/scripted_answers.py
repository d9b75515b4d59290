"""What a scripted node says: its model and plan, and a stream that is a function of positions."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from google.protobuf.message import Message
from grpc import aio

from kakeya.v1 import (
    model_pb2,
    placement_pb2,
    runtime_pb2,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    Context: TypeAlias = aio.ServicerContext[Message, Message]

VOCABULARY_SIZE = 1000
MODEL = model_pb2.ModelOffer(
    model_id="tiny",
    role=model_pb2.ROLE_VERIFIER,
    kind=model_pb2.MODEL_KIND_AUTOREGRESSIVE,
    weights_digest="cd" * 32,
    tokenizer_digest="ab" * 32,
    vocabulary_size=VOCABULARY_SIZE,
    context_length=2048,
    step_costs=[model_pb2.StepCost(token_count=1, seconds=0.01)],
    exact=True,
)
PLAN = placement_pb2.Plan(
    verifier=placement_pb2.Placement(node_id="aa", node_name="mini-1", model_id="tiny"),
    proposer=placement_pb2.Placement(node_id="bb", node_name="mini-2", model_id="ngram"),
    transport=placement_pb2.TRANSPORT_GRPC,
    block_size=4,
    acceptance_rate_low=0.25,
    acceptance_rate_high=0.75,
    predicted_tokens_per_second_low=50.0,
    predicted_tokens_per_second_high=90.0,
    exploring=True,
    trials=[
        placement_pb2.Trial(
            proposer=placement_pb2.Placement(model_id="lookup"),
            predicted_tokens_per_second_high=95.5,
        )
    ],
    reasons=["mini-2 drafts fastest"],
    rejections=[
        placement_pb2.Rejection(
            verifier=placement_pb2.Placement(node_id="cc"),
            reason=placement_pb2.REJECTION_REASON_NOT_ALIVE,
            explanation="mini-3 is dead",
        )
    ],
)
# What a node draws when a sampled generation comes without a seed.
DRAWN_SEED = 77


def next_token(position: int, seed: int = 0) -> int:
    """The scripted model: the id at a position, whatever came before; `seed` 0 when greedy."""
    return (position * 7 + 3 + seed * 13) % VOCABULARY_SIZE


def seed_of(request: runtime_pb2.GenerateRequest) -> int:
    """The seed of a generation's stream; 0 when greedy."""
    if request.temperature == 0:
        return 0
    return request.seed if request.HasField("seed") else DRAWN_SEED


def log_probabilities(
    request: runtime_pb2.GenerateRequest, block: list[int]
) -> runtime_pb2.CommittedTokens:
    """What is told of a block besides: the id at n has -n, its alternatives the ids behind it."""
    if not request.HasField("top_log_probabilities"):
        return runtime_pb2.CommittedTokens()
    count = request.top_log_probabilities
    alternatives = [
        runtime_pb2.TokenAlternatives(
            token_ids=[token + step for step in range(count)],
            log_probabilities=[float(-token - step) for step in range(count)],
        )
        for token in block
    ]
    return runtime_pb2.CommittedTokens(
        log_probabilities=[float(-token) for token in block],
        alternatives=alternatives if count else [],
    )


def tokenizer_messages(files: dict[str, bytes]) -> list[runtime_pb2.GetTokenizerResponse]:
    """A tokenizer as a node sends it, in chunks of 1,000 bytes."""
    header = runtime_pb2.TokenizerHeader(
        tokenizer_digest=hashlib.sha256(files["tokenizer.json"]).hexdigest(),
        files=[
            runtime_pb2.TokenizerFile(
                name=name, byte_count=len(content), sha256=hashlib.sha256(content).hexdigest()
            )
            for name, content in files.items()
        ],
    )
    content = b"".join(files.values())
    return [
        runtime_pb2.GetTokenizerResponse(header=header),
        *(
            runtime_pb2.GetTokenizerResponse(chunk=content[start : start + 1000])
            for start in range(0, len(content), 1000)
        ),
    ]

"""What a loaded proposer is, for its node's card."""

from __future__ import annotations

from dataclasses import dataclass

AUTOREGRESSIVE = "autoregressive"
NGRAM = "ngram"
DFLASH = "dflash"
MASKED_DIFFUSION = "masked_diffusion"


@dataclass(frozen=True, slots=True)
class ProposerInfo:
    """What a loaded proposer is.

    `kind` is one of the constants of this module; `architecture` the resolved
    one. Digests are those of `engine.models.digests`; `tokenizer_digest` is empty for a
    proposer of any tokenizer's ids, and `target_weights_digest` that of the one
    verifier it was made for, else empty. `block_size` is the most tokens of one
    draft and `context_length` the most positions; 0 means no limit. `backend`
    and `dtype` are empty for a proposer without tensors. Of histories of up to
    `given_history_tokens` it takes the keys and values that a verifier of its weights has,
    instead of reading them; 0 for one that takes none. One that `ends_drafts` drafts fewer tokens
    than it is asked for where more are too unsure to be worth its time.
    """

    model_id: str
    kind: str
    architecture: str = ""
    weights_digest: str = ""
    tokenizer_digest: str = ""
    vocabulary_size: int = 0
    context_length: int = 0
    block_size: int = 0
    target_weights_digest: str = ""
    dtype: str = ""
    backend: str = ""
    given_history_tokens: int = 0
    ends_drafts: bool = False

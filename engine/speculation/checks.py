"""What a draft from outside must be before the verifier looks at it."""

from __future__ import annotations

from kakeya_fleet.engine.contracts.draft import Draft
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind


def check_draft(draft: Draft, block_size: int, vocabulary_size: int) -> None:
    """Raises `DraftFailed` for a draft that cannot be verified.

    WRONG_LENGTH: more than `block_size` tokens. OUT_OF_VOCABULARY: an id that
    is no integer of 0 to `vocabulary_size` - 1. Fewer tokens, or none, are
    fine.
    """
    if len(draft.token_ids) > block_size:
        raise DraftFailed(
            DraftFaultKind.WRONG_LENGTH,
            f"{len(draft.token_ids)} tokens were drafted, {block_size} were asked for",
        )
    for token_id in draft.token_ids:
        # bool is an int to isinstance, and 1.0 == 1 would pass as a key.
        if type(token_id) is not int or not 0 <= token_id < vocabulary_size:
            raise DraftFailed(
                DraftFaultKind.OUT_OF_VOCABULARY,
                f"drafted id {token_id!r} is outside the vocabulary of {vocabulary_size}",
            )

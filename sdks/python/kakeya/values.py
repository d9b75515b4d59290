"""Values of sessions and generations that are more than a message, or none."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya.generated.values import GenerationDone


@dataclass(frozen=True, slots=True)
class Speculation:
    """A fixed proposer for a session, whatever the planner predicts.

    `node_id` empty means any node that serves `proposer_model`; `block_size`
    is drafted tokens a block, 1 to 31, 0 lets the planner choose.
    """

    proposer_model: str
    node_id: str = ""
    block_size: int = 0


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that the model held probable, and the natural logarithm of its probability."""

    token_id: int
    log_probability: float


@dataclass(frozen=True, slots=True)
class Tokens:
    """Committed tokens, oldest first; never empty.

    `first_index` is the position of the first in the history; the first
    `drafted_count` of them were drafted by the proposer. `log_probabilities`
    and `alternatives` are one item a token, empty unless asked for: natural
    logarithms of what the model itself gave, before bias, penalty, temperature
    and filters, and the most probable tokens at that position.
    """

    token_ids: tuple[int, ...]
    first_index: int
    drafted_count: int
    log_probabilities: tuple[float, ...] = ()
    alternatives: tuple[tuple[Alternative, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole generation: its tokens and its end; the rest as in `Tokens`."""

    token_ids: tuple[int, ...]
    done: GenerationDone
    log_probabilities: tuple[float, ...] = ()
    alternatives: tuple[tuple[Alternative, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Resumption:
    """A session that was opened anew, most often on another node, and lost nothing.

    Addresses are host:port, equal where its own node opened it again; `reason` is that
    of the error or stop reason, ASKED when the application asked for it;
    `history_length` tokens were appended there, and the session was there `seconds`
    after the loss was noticed.
    """

    from_address: str
    to_address: str
    reason: str
    history_length: int
    seconds: float

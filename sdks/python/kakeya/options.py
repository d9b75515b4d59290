"""What sessions, generations and plans may be asked for; all keywords, and none is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from kakeya.generated.values import KvQuality, KvStrategy, RestorerKind
from kakeya.values import Speculation

SpeculationChoice: TypeAlias = Literal["auto", "off"] | Speculation


class KvOptions(TypedDict, total=False):
    """How keys and values are kept.

    With "restored" evicted positions stay within reach, by `restorer` and what follows it.
    """

    kv_strategy: KvStrategy | str | None
    """None leaves it to the node: "restored" where a live archive has room and the verifier
    can use it, else "sink_window"; the session and the plan tell.
    """
    sink_tokens: int | None
    """Positions at the start that stay resident; the node's default, 4, unless given."""
    window_tokens: int | None
    """Latest positions that stay resident; the node's default, 1,024, unless given."""
    restorer: RestorerKind | str | None
    """"archive" (the default: another node keeps them, exact), "projection" (a learned map
    makes them there, of a smaller vector each), or "identity", a check of the plumbing.
    """
    restorer_model: str
    """With "projection": the drafter whose learned map it is; that which is shipped for the
    verifier unless given.
    """
    restorer_node_id: str
    """The archive's node; the nearest with room unless given."""
    kv_quality: KvQuality | str | None
    """"lossless" (the default), or how exactly keys and values behind the window are kept: "high"
    and "economy" pack them, for 3.4 and 4.3 times the context a byte, of an archive ("restored")
    or of the verifier's own memory ("full").
    """
    kv_quality_when_short: KvQuality | str | None
    """With "full": "high" or "economy" where the verifier is short of memory. The session is packed
    then, and computes its history once more; `done.kv_quality` tells. Never unless given.
    """


class OpeningOptions(KvOptions, total=False):
    """How a session is opened, whatever it begins with."""

    traceparent: str
    """Sent with each call of the session (W3C Trace Context), so that its work on all nodes
    is part of your trace; `fleet trace` shows it by the trace's id.
    """
    stop_token_ids: Sequence[int]
    """Generations stop after any of these."""
    speculation: SpeculationChoice
    """"auto" (the default: the planner pairs a proposer when it pays), "off", or a fixed one."""
    client_label: str
    """For lists and logs; at most 128 characters."""
    request_id: str | None
    """The same one within ten minutes gives the same session, so that a retry opens no second
    one; made up unless given.
    """
    max_history_tokens: int
    """Bounds a session of kv_strategy "full", and takes its memory at once. 0, the default,
    lets the memory follow the history, up to the model's context length; an append or a
    generation that finds none raises OutOfKvMemory.
    """
    resume: bool
    """Whether the session outlives its node: when that is lost (unreachable, silent, draining,
    its group broken), another live node that serves the same weights opens it with the same
    history, and the tokens go on as the same stream; `resumptions` tells of it. A session that
    its node has forgotten (evicted, or gone with a restart) is opened there again. The fleet is
    looked at when it is opened, so that the loss of the client's node does not end it.
    """


class SessionOptions(OpeningOptions, total=False):
    """How a session is opened."""

    tokens: Sequence[int]
    """The first tokens of the history: computed before the session is there. The first 65,536
    travel with the request, more are appended; where that fails, no session stays open.
    """
    room_tokens: int
    """With `tokens`: see `AsyncSession.append`; 0 unless given."""


class PlanOptions(KvOptions, total=False):
    """What a plan is asked for; empty strings, as unless given, mean any."""

    proposer_model: str
    proposer_node_id: str
    verifier_node_id: str
    context_tokens: int
    """The longest history to plan for."""
    block_size: int
    """Drafted tokens a block; 0, the default, is the planner's choice."""
    without_proposer: bool
    """Plan the verifier alone."""


class GenerateOptions(TypedDict, total=False):
    """How a generation chooses its tokens, and when it ends.

    In this order: `logit_bias` is added to the logits; those of ids that the history has are
    divided by `repetition_penalty`, or multiplied where negative; those of ids that this
    generation has chosen before are lowered by `frequency_penalty` as often, and by
    `presence_penalty` once; what `json_schema`, `json_object`, `regex` or `lark` does not allow is
    left out; `temperature` 0 takes the largest, and otherwise divides them; the `top_k` most
    probable ids are kept, of these the smallest set whose probability reaches `top_p`, of these the
    ids at least `min_p` times as probable as the first.
    """

    temperature: float
    """0, greedy, unless given; at most 100."""
    top_p: float
    """0 or 1, as unless given, keeps all."""
    top_k: int
    """0, as unless given, keeps all."""
    min_p: float
    """0, as unless given, keeps all."""
    repetition_penalty: float
    """1/64 to 64; 1, as unless given, or 0 changes nothing."""
    frequency_penalty: float
    """-2 to 2; 0, as unless given, changes nothing."""
    presence_penalty: float
    """-2 to 2; 0, as unless given, changes nothing."""
    json_schema: Mapping[str, Any] | str | None
    """The answer is JSON that fits this JSON schema, given as a mapping or as its JSON."""
    json_object: bool
    """The answer is a JSON object, whatever it has."""
    regex: str | None
    """The answer is what this regular expression matches, from its first character to its last;
    in the syntax of Rust's regex crate.
    """
    lark: str | None
    """The answer is what the rule `start` of this Lark grammar derives, in llguidance's dialect. At
    most one of these four is given; an answer that is whole ends, with `StopReason.COMPLETE` where
    nothing can follow.
    """
    logit_bias: Mapping[int, float] | None
    """By id: -10,000 to 10,000, or minus infinity, which bans the id."""
    seed: int | None
    """Names the sampled stream: the same seed gives the same ids. Unless given the node draws
    one, or the client where the session can resume.
    """
    stop_token_ids: Sequence[int]
    """Stop after one of these, besides the session's own."""
    top_log_probabilities: int | None
    """0 to 20: tokens come with their log-probabilities, and those of so many alternatives."""
    deadline_seconds: float | None
    """Stop after so many seconds."""
    request_id: str
    """Names the generation for `fleet trace`; at most 128 characters."""
    gives_way: bool
    """Whether the session, from the generation's end until its next operation, makes way at once
    where another needs its memory or its place, however short it has been idle: for one that may
    go on, or never. False unless given.
    """


class ChatOptions(OpeningOptions, total=False):
    """How a chat is begun. `resume` is true unless given; `stop_token_ids` end its answers besides
    those of the model's tokenizer.
    """

    system: str
    """What the system says before all else."""
    plain: bool
    """Join the turns plainly, each with a line's end: for a model without a chat template."""
    variables: Mapping[str, Any]
    """The template's own, such as {"enable_thinking": False}."""
    max_tokens: int
    """The longest answer, unless its `say` tells another; 2,048 unless given."""
    sampling: GenerateOptions
    """How answers choose their tokens, unless their `say` tells otherwise."""

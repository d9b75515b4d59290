"""Sessions' requests from the wire: every field's range, and the domain's values."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256

from kakeya.v1 import placement_pb2 as placement_wire
from kakeya.v1 import runtime_pb2 as wire
from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import VerifierInfo
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sampling.logit_bias import LogitBias
from kakeya_fleet.engine.sampling.randomness import draw_seed
from kakeya_fleet.fleet.placement.codec_ladder import PackedQuality
from kakeya_fleet.fleet.placement.cost_model import MAX_BLOCK_SIZE
from kakeya_fleet.fleet.placement.packing import FULL_WINDOW, Packing
from kakeya_fleet.fleet.placement.plan import KvStrategy, PlanRequest
from kakeya_fleet.node.grammars.grammar import ANY_OBJECT, Grammar, GrammarKind
from kakeya_fleet.node.planning.cache_specs import Keeping, cache_spec
from kakeya_fleet.node.planning.kv_quality import (
    pinned_of,
    quality_of,
    quality_when_short_of,
)
from kakeya_fleet.node.planning.plan_wire import (
    DEFAULT_SINK_TOKENS,
    DEFAULT_WINDOW_TOKENS,
    check_when_short,
    full_window_of,
    kv_strategy_from_wire,
)
from kakeya_fleet.node.roles.archive.opening import KINDS as RESTORER_KINDS
from kakeya_fleet.node.roles.archive.session_restorers import RestorerChoice
from kakeya_fleet.node.rpc.refusals import BadPageToken

MAX_GENERATED_TOKENS = 1 << 20
MAX_NAME_CHARACTERS = 128
MAX_STOP_TOKENS = 1024
MAX_PAGE_SIZE = 1000
DEFAULT_PAGE_SIZE = 100
MAX_PAGE_DIGITS = 20


class SpeculationChoice(Enum):
    """How a session's proposer is chosen."""

    AUTO = "auto"
    OFF = "off"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class SpeculationSpec:
    """Speculation of a session; `block_size` None lets the planner choose."""

    choice: SpeculationChoice = SpeculationChoice.AUTO
    proposer_node_id: str = ""
    proposer_model_id: str = ""
    block_size: int | None = None


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """Which tokens a session was opened with: how many, and their SHA-256 as 4 bytes each."""

    count: int = 0
    digest: str = ""

    @classmethod
    def of(cls, token_ids: Sequence[int]) -> FirstTokens:
        """Those of a request; no digest for none."""
        if not token_ids:
            return cls()
        return cls(len(token_ids), sha256(array("I", token_ids).tobytes()).hexdigest())


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """A session as it was asked for, defaults filled in.

    One that `leaves_strategy` to the node is a `sink_window` one until it is `decided`.
    `sink_tokens` and `window_tokens` are those of `sink_window` and `restored`;
    `max_history_tokens` that of `full`, 0 for the model's context length, which keeps its latest
    `full_window_tokens` as they lie where it packs; `restorer` is that of
    `restored`, None for the others. With a `quality` it packs what is behind its window, by
    the `pinned` codec if it names one; `packing` is how, None until that is decided. So are
    `quality_when_short` and `packing_when_short`, of a `full` one where memory is short.
    """

    model_id: str
    kv_strategy: KvStrategy
    sink_tokens: int
    window_tokens: int
    stop_token_ids: frozenset[int]
    speculation: SpeculationSpec
    client_label: str
    request_id: str
    max_history_tokens: int
    restorer: RestorerChoice | None = None
    quality: PackedQuality | None = None
    pinned: str = ""
    packing: Packing | None = None
    quality_when_short: PackedQuality | None = None
    packing_when_short: Packing | None = None
    full_window_tokens: int = FULL_WINDOW
    leaves_strategy: bool = False
    first_tokens: FirstTokens = FirstTokens()
    room_tokens: int = 0
    """Behind the first tokens, of one that grows: their memory is taken with that of these."""

    def decided(self, strategy: KvStrategy) -> SessionSpec:
        """The same with the strategy that was chosen for it, whose restorer is an archive."""
        restorer = RestorerChoice() if strategy is KvStrategy.RESTORED else None
        return replace(self, kv_strategy=strategy, restorer=restorer, leaves_strategy=False)

    def packed_by(self, packing: Packing) -> SessionSpec:
        """The same with how it packs."""
        restorer = self.restorer
        if restorer is not None:
            restorer = replace(restorer, packing=packing)
        return replace(self, packing=packing, restorer=restorer)

    @property
    def codec(self) -> str:
        """Names what packs; empty for nothing, and until it is decided."""
        return self.packing.codec if self.packing is not None else ""

    def smaller_cache_spec(self, info: VerifierInfo) -> CacheSpec | None:
        """The cache to allocate where memory is short; None for no other."""
        if self.packing_when_short is None:
            return None
        return replace(self, packing=self.packing_when_short).cache_spec(info)

    def first_cache_spec(self, spec: CacheSpec) -> CacheSpec:
        """The memory that is taken of `spec`, its cache, before it is told of: all it has room for.

        Of one that takes its memory as its history grows that is the first segment, unless room
        is asked for.
        """
        end = self.first_tokens.count + self.room_tokens
        if not (spec.grows and self.room_tokens):
            return spec
        return replace(spec, grows=False, capacity=min(end, spec.capacity))

    def cache_spec(self, info: VerifierInfo, restorer: RestorerSpec | None = None) -> CacheSpec:
        """The cache to allocate on a verifier; `restorer` is that of `restored`."""
        keeping = Keeping(
            strategy=self.kv_strategy,
            sink_tokens=self.sink_tokens,
            window_tokens=self.window_tokens,
            full_window_tokens=self.full_window_tokens,
            max_history_tokens=self.max_history_tokens,
            codec=self.codec,
            restorer=restorer,
        )
        return cache_spec(keeping, info.context_length)

    def plan_request(self, verifier_node_id: str, info: VerifierInfo) -> PlanRequest:
        """What the planner is asked for on this session's behalf."""
        context_tokens = info.context_length
        if self.kv_strategy is KvStrategy.FULL and self.max_history_tokens:
            context_tokens = min(self.max_history_tokens, context_tokens)
        return PlanRequest(
            verifier_model=self.model_id,
            proposer_model=self.speculation.proposer_model_id,
            proposer_node_id=self.speculation.proposer_node_id,
            verifier_node_id=verifier_node_id,
            context_tokens=context_tokens,
            kv_strategy=None if self.leaves_strategy else self.kv_strategy,
            grows=not self.max_history_tokens,
            sink_tokens=self.sink_tokens,
            window_tokens=self.window_tokens,
            full_window_tokens=self.full_window_tokens,
            block_size=self.speculation.block_size,
            without_proposer=self.speculation.choice is SpeculationChoice.OFF,
            # The session opens the archive itself, and says where.
            without_archive=not self.leaves_strategy,
            packing=self.packing,
            packing_when_short=self.packing_when_short,
        )


@dataclass(frozen=True, slots=True)
class GenerationSpec:
    """One generation as it was asked for; `deadline_seconds` 0 for no limit.

    `stop_token_ids` are those besides the session's own. `expected_length` is what the caller
    holds of the history, None when it does not say. The latest `said_count` tokens of the
    history are the generation's own, from a node that was lost.
    """

    max_tokens: int
    sampling: SamplingParameters
    deadline_seconds: float
    stop_token_ids: frozenset[int] = frozenset()
    expected_length: int | None = None
    request_id: str = ""
    grammar: Grammar | None = None
    said_count: int = 0
    gives_way: bool = False
    """Whether the session makes way at once from its end until it goes on."""

    def check_for_model(self, info: VerifierInfo) -> None:
        """Checks what depends on the model. Raises `BadParameters`."""
        _check_stop_ids(self.stop_token_ids, info)
        self.sampling.check_vocabulary(info.vocabulary_size)


def session_spec_from_wire(request: wire.CreateSessionRequest) -> SessionSpec:
    """Checks all that needs no model. Raises `BadParameters`."""
    if not request.model_id:
        raise BadParameters("model_id is empty; name a verifier model", field="model_id")
    _check_name("client_label", request.client_label)
    _check_name("request_id", request.request_id)
    stop_token_ids = _stop_ids_from_wire(request.stop_token_ids)
    window = request.window_tokens if request.HasField("window_tokens") else DEFAULT_WINDOW_TOKENS
    if window < 1:
        raise _out_of_range("window_tokens", window, "at least 1")
    asked = kv_strategy_from_wire(request.kv_strategy)
    strategy = asked or KvStrategy.SINK_WINDOW
    restorer = None
    if strategy is KvStrategy.RESTORED:
        restorer = restorer_from_wire(request.restorer)
    elif strategy is KvStrategy.FULL:
        _check_own(request.restorer)
    elif request.HasField("restorer"):
        raise BadParameters(
            f"a session of kv_strategy {asked.value if asked else 'unspecified'} keeps nothing"
            " that leaves its window; ask for kv_strategy restored or full, or leave restorer out",
            field="restorer",
        )
    when_short = quality_when_short_of(request.restorer)
    check_when_short(when_short, asked)
    quality = quality_of(request.restorer)
    return SessionSpec(
        model_id=request.model_id,
        kv_strategy=strategy,
        sink_tokens=(
            request.sink_tokens if request.HasField("sink_tokens") else DEFAULT_SINK_TOKENS
        ),
        window_tokens=window,
        stop_token_ids=stop_token_ids,
        speculation=speculation_from_wire(request.speculation),
        client_label=request.client_label,
        request_id=request.request_id,
        max_history_tokens=request.max_history_tokens,
        restorer=restorer,
        quality=quality,
        pinned=pinned_of(request.restorer),
        quality_when_short=when_short,
        full_window_tokens=full_window_of(asked, request.window_tokens, quality or when_short),
        leaves_strategy=asked is None,
        first_tokens=FirstTokens.of(request.initial_token_ids),
        room_tokens=request.room_tokens,
    )


def _check_own(message: placement_wire.Restorer) -> None:
    """Of a `full` session, which packs in its verifier's own memory. Raises `BadParameters`."""
    own = (placement_wire.RESTORER_KIND_UNSPECIFIED, placement_wire.RESTORER_KIND_IDENTITY)
    if message.kind not in own or message.model_id or message.node_id:
        raise BadParameters(
            "a session of kv_strategy full evicts nothing that an archive keeps; of restorer it"
            " takes the quality alone",
            field="restorer",
        )


def restorer_from_wire(message: placement_wire.Restorer) -> RestorerChoice:
    """What restores. Raises `BadParameters`."""
    kinds = {
        placement_wire.RESTORER_KIND_UNSPECIFIED: RestorerKind.ARCHIVE,
        **{number: kind for kind, number in RESTORER_KINDS.items()},
    }
    kind = kinds.get(message.kind)
    if kind is None:
        raise _out_of_range(
            "restorer.kind", message.kind, "1 (archive), 2 (projection) or 3 (identity)"
        )
    _check_name("restorer.model_id", message.model_id)
    _check_name("restorer.node_id", message.node_id)
    if message.model_id and kind is not RestorerKind.PROJECTION:
        raise BadParameters(
            f"the restorer {kind.value} has no learned map; leave restorer.model_id empty",
            field="restorer.model_id",
        )
    if message.node_id and kind is RestorerKind.IDENTITY:
        raise BadParameters(
            "the restorer identity is in the verifier's own process; leave restorer.node_id empty",
            field="restorer.node_id",
        )
    return RestorerChoice(kind, message.model_id, message.node_id)


def check_for_model(spec: SessionSpec, info: VerifierInfo) -> None:
    """Checks what depends on the model. Raises `BadParameters`."""
    _check_stop_ids(spec.stop_token_ids, info)
    block_size = spec.speculation.block_size or 0
    if block_size > info.width - 1:
        raise _out_of_range("speculation.block_size", block_size, f"0 to {info.width - 1}")


def speculation_from_wire(message: wire.Speculation) -> SpeculationSpec:
    """The choice of a proposer. Raises `BadParameters`."""
    choices = {
        wire.SPECULATION_MODE_UNSPECIFIED: SpeculationChoice.AUTO,
        wire.SPECULATION_MODE_AUTO: SpeculationChoice.AUTO,
        wire.SPECULATION_MODE_OFF: SpeculationChoice.OFF,
        wire.SPECULATION_MODE_FIXED: SpeculationChoice.FIXED,
    }
    choice = choices.get(message.mode)
    if choice is None:
        raise _out_of_range("speculation.mode", message.mode, "1 (auto), 2 (off) or 3 (fixed)")
    if message.block_size > MAX_BLOCK_SIZE:
        raise _out_of_range("speculation.block_size", message.block_size, f"0 to {MAX_BLOCK_SIZE}")
    if choice is not SpeculationChoice.FIXED:
        return SpeculationSpec(choice, block_size=message.block_size or None)
    if not message.proposer_model_id:
        raise BadParameters(
            "speculation.proposer_model_id is empty; a fixed proposer needs its model",
            field="speculation.proposer_model_id",
        )
    return SpeculationSpec(
        choice,
        message.proposer_node_id,
        message.proposer_model_id,
        message.block_size or None,
    )


def generation_spec_from_wire(
    request: wire.GenerateRequest, entropy: Callable[[int], bytes]
) -> GenerationSpec:
    """Checks every field; draws a seed when a sampled stream has none.

    Raises `BadParameters`, `GrammarRefused`.
    """
    if not 1 <= request.max_tokens <= MAX_GENERATED_TOKENS:
        raise _out_of_range("max_tokens", request.max_tokens, f"1 to {MAX_GENERATED_TOKENS:,}")
    deadline = request.deadline_seconds
    if not math.isfinite(deadline) or deadline < 0.0:
        raise _out_of_range("deadline_seconds", deadline, "a finite number, at least 0")
    _check_name("request_id", request.request_id)
    if request.HasField("seed"):
        seed = request.seed
    else:
        seed = draw_seed(entropy) if request.temperature != 0.0 else 0
    return GenerationSpec(
        max_tokens=request.max_tokens,
        sampling=SamplingParameters(
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            seed=seed,
            min_p=request.min_p,
            repetition_penalty=request.repetition_penalty or 1.0,
            logit_bias=LogitBias.of(request.logit_bias),
            top_log_probabilities=(
                request.top_log_probabilities if request.HasField("top_log_probabilities") else None
            ),
            frequency_penalty=request.frequency_penalty,
            presence_penalty=request.presence_penalty,
        ),
        deadline_seconds=deadline,
        stop_token_ids=_stop_ids_from_wire(request.stop_token_ids),
        expected_length=(
            request.expected_history_length if request.HasField("expected_history_length") else None
        ),
        request_id=request.request_id,
        grammar=grammar_from_wire(request.grammar) if request.HasField("grammar") else None,
        said_count=request.said_token_count,
        gives_way=request.gives_way,
    )


def grammar_from_wire(message: wire.Grammar) -> Grammar:
    """What an answer may be. Raises `BadParameters`, `GrammarRefused`."""
    match message.WhichOneof("kind"):
        case "json_schema":
            return Grammar(GrammarKind.JSON_SCHEMA, message.json_schema)
        case "json_object" if message.json_object:
            return Grammar(GrammarKind.JSON_SCHEMA, ANY_OBJECT)
        case "regex":
            return Grammar(GrammarKind.REGEX, message.regex)
        case "lark":
            return Grammar(GrammarKind.LARK, message.lark)
    raise BadParameters(
        "grammar says nothing; set its json_schema, json_object (to true), regex or lark",
        field="grammar",
    )


def page_from_wire(request: wire.ListSessionsRequest) -> tuple[int, int]:
    """The ordinal after which the page begins, and the page's size.

    Raises `BadParameters`, `BadPageToken`.
    """
    if request.page_size > MAX_PAGE_SIZE:
        raise _out_of_range("page_size", request.page_size, f"0 to {MAX_PAGE_SIZE}")
    token = request.page_token
    # Digits of ASCII alone: str.isdecimal also takes those of other scripts.
    if token and not (token.isascii() and token.isdecimal() and len(token) < MAX_PAGE_DIGITS):
        raise BadPageToken("page_token is none of this node's; list from the first page again")
    return int(token or 0), request.page_size or DEFAULT_PAGE_SIZE


def _stop_ids_from_wire(token_ids: Sequence[int]) -> frozenset[int]:
    if len(token_ids) > MAX_STOP_TOKENS:
        raise _out_of_range("stop_token_ids", len(token_ids), f"at most {MAX_STOP_TOKENS} ids")
    return frozenset(token_ids)


def _check_stop_ids(token_ids: frozenset[int], info: VerifierInfo) -> None:
    largest = max(token_ids, default=0)
    if largest >= info.vocabulary_size:
        raise _out_of_range("stop_token_ids", largest, f"ids of 0 to {info.vocabulary_size - 1}")


def _check_name(field: str, value: str) -> None:
    if len(value) > MAX_NAME_CHARACTERS:
        raise _out_of_range(field, len(value), f"at most {MAX_NAME_CHARACTERS} characters")
    if not value.isprintable():
        # Names are shown in terminals and logs of others.
        raise BadParameters(
            f"{field} is {value!r}, which is not printable; leave out control characters",
            field=field,
        )


def _out_of_range(field: str, value: float, allowed: str) -> BadParameters:
    return BadParameters(f"{field} is {value}; allowed: {allowed}", field=field)

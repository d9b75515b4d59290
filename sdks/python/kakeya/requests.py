"""Requests of what was asked for, checked by name and range before anything is sent."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from kakeya import ranges
from kakeya.enum_names import enum_number
from kakeya.errors import BadRequest
from kakeya.generated.values import KvQuality, KvStrategy, RestorerKind
from kakeya.grammars import grammar
from kakeya.options import (
    ChatOptions,
    GenerateOptions,
    KvOptions,
    OpeningOptions,
    PlanOptions,
    SessionOptions,
    SpeculationChoice,
)
from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya.values import Speculation

RequestT = TypeVar("RequestT", bound=Message)


def session_request(model: str, options: SessionOptions) -> runtime_pb2.CreateSessionRequest:
    """Opens a session, without its first tokens. Raises BadRequest, TypeError."""
    _check_names("create_session", options, SessionOptions)
    sink_tokens, window_tokens = options.get("sink_tokens"), options.get("window_tokens")
    request_id = options.get("request_id")
    return _built(
        lambda: runtime_pb2.CreateSessionRequest(
            model_id=model,
            kv_strategy=_kv_strategy(options),
            sink_tokens=ranges.optional_whole("sink_tokens", sink_tokens, 0),
            window_tokens=ranges.optional_whole("window_tokens", window_tokens, 1),
            stop_token_ids=ranges.stop_token_ids(options.get("stop_token_ids", ())),
            speculation=_speculation(options.get("speculation", "auto")),
            client_label=ranges.name("client_label", options.get("client_label", "")),
            request_id=secrets.token_hex(16)
            if request_id is None
            else ranges.name("request_id", request_id),
            max_history_tokens=ranges.whole(
                "max_history_tokens", options.get("max_history_tokens", 0), 0
            ),
            restorer=_restorer(options),
            room_tokens=ranges.whole("room_tokens", options.get("room_tokens", 0), 0),
        )
    )


def opening_options(method: str, options: ChatOptions) -> OpeningOptions:
    """How a chat's session is opened. Raises TypeError for a name that is none of a chat's."""
    _check_names(method, options, ChatOptions)
    known = OpeningOptions.__optional_keys__
    return cast("OpeningOptions", {name: value for name, value in options.items() if name in known})


def plan_request(verifier_model: str, options: PlanOptions) -> placement_pb2.PlanRequest:
    """Asks for a plan. Raises BadRequest, TypeError."""
    _check_names("plan", options, PlanOptions)
    sink_tokens, window_tokens = options.get("sink_tokens"), options.get("window_tokens")
    block_size = options.get("block_size", 0)
    return _built(
        lambda: placement_pb2.PlanRequest(
            verifier_model=verifier_model,
            proposer_model=options.get("proposer_model", ""),
            proposer_node_id=options.get("proposer_node_id", ""),
            verifier_node_id=options.get("verifier_node_id", ""),
            context_tokens=ranges.whole("context_tokens", options.get("context_tokens", 0), 0),
            kv_strategy=_kv_strategy(options),
            sink_tokens=ranges.optional_whole("sink_tokens", sink_tokens, 0) or 0,
            window_tokens=ranges.optional_whole("window_tokens", window_tokens, 0) or 0,
            block_size=ranges.whole("block_size", block_size, 0, ranges.MAX_DRAFTED_TOKENS),
            without_proposer=options.get("without_proposer", False),
            restorer=_restorer(options),
        )
    )


def generate_request(
    max_tokens: int, options: GenerateOptions, *, draws_seed: bool
) -> runtime_pb2.GenerateRequest:
    """Continues a history; with `draws_seed` a sampled one has a seed.

    Another node can go on with its stream then. Raises BadRequest, TypeError.
    """
    _check_names("generate", options, GenerateOptions)
    temperature = options.get("temperature", 0.0)
    request = runtime_pb2.GenerateRequest(
        max_tokens=ranges.whole("max_tokens", max_tokens, 1, ranges.MAX_GENERATED_TOKENS),
        temperature=ranges.number("temperature", temperature, 0, ranges.MAX_TEMPERATURE),
        top_p=ranges.number("top_p", options.get("top_p", 1.0), 0, 1),
        top_k=ranges.whole("top_k", options.get("top_k", 0), 0),
        min_p=ranges.number("min_p", options.get("min_p", 0.0), 0, 1),
        repetition_penalty=ranges.repetition_penalty(options.get("repetition_penalty", 1.0)),
        frequency_penalty=ranges.count_penalty(
            "frequency_penalty", options.get("frequency_penalty", 0.0)
        ),
        presence_penalty=ranges.count_penalty(
            "presence_penalty", options.get("presence_penalty", 0.0)
        ),
        grammar=grammar(options),
        logit_bias=ranges.logit_bias(options.get("logit_bias")),
        seed=ranges.optional_whole("seed", options.get("seed"), 0, ranges.LARGEST_SEED),
        stop_token_ids=ranges.stop_token_ids(options.get("stop_token_ids", ())),
        top_log_probabilities=ranges.optional_whole(
            "top_log_probabilities",
            options.get("top_log_probabilities"),
            0,
            ranges.MAX_ALTERNATIVES,
        ),
        deadline_seconds=ranges.number(
            "deadline_seconds", options.get("deadline_seconds") or 0.0, 0, ranges.LONGEST_SECONDS
        ),
        request_id=ranges.name("request_id", options.get("request_id", "")),
        gives_way=options.get("gives_way", False),
    )
    if draws_seed and temperature > 0 and not request.HasField("seed"):
        request.seed = secrets.randbits(64)
    return request


def _check_names(method: str, options: Mapping[str, object], known: Any) -> None:
    for name in options:
        if name not in known.__optional_keys__:
            raise TypeError(f"{method}() got an unexpected keyword argument {name!r}")


def _built(request: Callable[[], RequestT]) -> RequestT:
    """The request; raises BadRequest for what its fields cannot hold."""
    try:
        return request()
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _kv_strategy(options: KvOptions) -> placement_pb2.KvStrategy.ValueType:
    given = options.get("kv_strategy")
    return enum_number("kv_strategy", KvStrategy, placement_pb2.KvStrategy, given)


def _restorer(options: KvOptions) -> placement_pb2.Restorer | None:
    """What restores; None when nothing is asked for."""
    kind = options.get("restorer")
    model_id, node_id = options.get("restorer_model", ""), options.get("restorer_node_id", "")
    quality, when_short = options.get("kv_quality"), options.get("kv_quality_when_short")
    is_named = any(each is not None for each in (kind, quality, when_short))
    if not (is_named or model_id or node_id):
        return None
    # A full session packs what it keeps itself: no restorer is meant unless one is named.
    default = placement_pb2.RESTORER_KIND_ARCHIVE
    if _kv_strategy(options) == placement_pb2.KV_STRATEGY_FULL:
        default = placement_pb2.RESTORER_KIND_UNSPECIFIED
    return placement_pb2.Restorer(
        kind=enum_number("restorer", RestorerKind, placement_pb2.RestorerKind, kind) or default,
        model_id=model_id,
        node_id=node_id,
        quality=enum_number("kv_quality", KvQuality, placement_pb2.KvQuality, quality),
        quality_when_short=enum_number(
            "kv_quality_when_short", KvQuality, placement_pb2.KvQuality, when_short
        ),
    )


def _speculation(choice: SpeculationChoice) -> runtime_pb2.Speculation:
    match choice:
        case Speculation():
            return runtime_pb2.Speculation(
                mode=runtime_pb2.SPECULATION_MODE_FIXED,
                proposer_node_id=choice.node_id,
                proposer_model_id=choice.proposer_model,
                block_size=ranges.whole(
                    "speculation.block_size", choice.block_size, 0, ranges.MAX_DRAFTED_TOKENS
                ),
            )
        case "auto":
            return runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_AUTO)
        case "off":
            return runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF)
        case other:
            raise BadRequest(
                f"speculation is 'auto', 'off' or a Speculation, not {other!r}",
                metadata={"field": "speculation"},
            )

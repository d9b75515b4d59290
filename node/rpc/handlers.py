"""What a handler of gRPC does, whatever its kind: interceptors wrap it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import grpc
import grpc.aio

if TYPE_CHECKING:
    # gRPC hands interceptors the handlers of every service: their message types are known
    # to the generated code alone.
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Behaviour: TypeAlias = Callable[[Any, Context], Any]


def behaviour_of(handler: Handler) -> tuple[Behaviour, Callable[..., Handler]]:
    """What the handler does, and the maker of handlers of its kind."""
    kinds: dict[tuple[bool, bool], tuple[object, Callable[..., Handler]]] = {
        (False, False): (handler.unary_unary, grpc.unary_unary_rpc_method_handler),
        (False, True): (handler.unary_stream, grpc.unary_stream_rpc_method_handler),
        (True, False): (handler.stream_unary, grpc.stream_unary_rpc_method_handler),
        (True, True): (handler.stream_stream, grpc.stream_stream_rpc_method_handler),
    }
    behaviour, make = kinds[bool(handler.request_streaming), bool(handler.response_streaming)]
    return cast("Behaviour", behaviour), make

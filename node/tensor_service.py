"""TensorService: declared by the contract, refused by this version."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc.aio

from kakeya.v1 import tensor_pb2, tensor_pb2_grpc
from node.rpc.refusals import LinkUnsupported


def _refusal() -> LinkUnsupported:
    return LinkUnsupported(
        "this version opens no tensor links; sessions need none, drafts travel as token ids"
    )


class TensorServicer(tensor_pb2_grpc.TensorServiceServicer):
    """Answers every call with UNIMPLEMENTED (LINK_UNSUPPORTED)."""

    async def OpenLink(  # noqa: N802
        self,
        _request: tensor_pb2.OpenLinkRequest,
        _context: grpc.aio.ServicerContext[tensor_pb2.OpenLinkRequest, tensor_pb2.OpenLinkResponse],
    ) -> tensor_pb2.OpenLinkResponse:
        """Raises `LinkUnsupported`."""
        raise _refusal()

    async def StreamTensors(  # type: ignore[override]  # noqa: N802
        self,
        _request_iterator: AsyncIterator[tensor_pb2.StreamTensorsRequest],
        _context: grpc.aio.ServicerContext[
            tensor_pb2.StreamTensorsRequest, tensor_pb2.StreamTensorsResponse
        ],
    ) -> None:
        """Raises `LinkUnsupported`."""
        raise _refusal()

    async def CloseLink(  # noqa: N802
        self,
        _request: tensor_pb2.CloseLinkRequest,
        _context: grpc.aio.ServicerContext[
            tensor_pb2.CloseLinkRequest, tensor_pb2.CloseLinkResponse
        ],
    ) -> tensor_pb2.CloseLinkResponse:
        """Raises `LinkUnsupported`."""
        raise _refusal()

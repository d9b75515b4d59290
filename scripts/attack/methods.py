"""Every call that a node answers, from the descriptors of its services."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from kakeya.v1 import (
    archive_pb2,
    capability_pb2,
    model_service_pb2,
    placement_pb2,
    proposer_pb2,
    runtime_pb2,
    tensor_pb2,
    trust_pb2,
)

FILES: tuple[FileDescriptor, ...] = tuple(
    module.DESCRIPTOR
    for module in (
        *(
            runtime_pb2,
            placement_pb2,
            capability_pb2,
            model_service_pb2,
            proposer_pb2,
            tensor_pb2,
            archive_pb2,
            trust_pb2,
        ),
        *(health_pb2, reflection_pb2),
    )
)


LEAVE = "Leave"
"""The call that ends a node, rightly: this machine may ask for it."""


@dataclass(frozen=True, slots=True)
class Method:
    """One call; `request` and `response` make its messages."""

    service: str
    name: str
    request: type[Message]
    response: type[Message]
    sends_many: bool
    answers_many: bool

    @property
    def path(self) -> str:
        """As gRPC names it."""
        return f"/{self.service}/{self.name}"


def all_methods() -> Iterator[Method]:
    """Of all services, in the order in which they are declared."""
    for file in FILES:
        for service in file.services_by_name.values():
            for method in service.methods:
                yield Method(
                    service.full_name,
                    method.name,
                    GetMessageClass(method.input_type),
                    GetMessageClass(method.output_type),
                    method.client_streaming,
                    method.server_streaming,
                )

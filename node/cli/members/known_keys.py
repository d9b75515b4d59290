"""Keys of the fleet, for shells that complete them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kakeya_fleet.node.cli.asking.known_names import ASKING_SECONDS, Names, items

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem


def complete_keys(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Names of the keys that are in force."""
    return items(_keys(context.params.get("node")), incomplete)


def _keys(node: str | None) -> Names:
    """What the node of this machine says; nothing without one, and when it takes too long."""
    import grpc

    from kakeya.v1 import trust_pb2, trust_pb2_grpc
    from kakeya_fleet.node.cli.members.owned_node import owned
    from kakeya_fleet.node.cli.shell.failure import CommandFailed

    try:
        asked = owned(node)
        with grpc.insecure_channel(asked.address) as channel:
            stub = trust_pb2_grpc.TrustServiceStub(channel)
            request = trust_pb2.ListKeysRequest()
            found = stub.ListKeys(request, metadata=asked.metadata, timeout=ASKING_SECONDS).keys
    except (CommandFailed, grpc.RpcError):
        return {}
    return {each.name: each.key_id for each in found if not each.revoked}

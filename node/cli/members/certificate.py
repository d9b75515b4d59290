"""`fleet certificate`: by which clients know the fleet's nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya.v1 import trust_pb2
    from kakeya.v1.trust_pb2_grpc import TrustServiceAsyncStub

EXAMPLE = """\b
Example:
  fleet certificate > fleet.pem
  curl --cacert fleet.pem -H "authorization: Bearer $KEY" https://mini-1.local:PORT/v1/models
  SSL_CERT_FILE=fleet.pem OPENAI_API_KEY=$KEY python app.py
"""


@click.command("certificate", epilog=EXAMPLE)
@node_option
@json_option
def command(node: str | None, *, as_json: bool) -> int:
    """Print the certificates of the fleet's keepers, by which clients know its nodes.

    They are no secret. Clients take them as the authorities whom they trust for this fleet,
    beside a key of `fleet key create`; again once a keeper was added or put out.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    from kakeya.v1 import trust_pb2
    from kakeya_fleet.node.cli.members.owned_node import SECONDS, ask_trust, owned
    from kakeya_fleet.node.cli.terminal.output import say, write_json
    from kakeya_fleet.node.trust.certificates import MEMBER_NAME

    asked = owned(node)

    async def look(stub: TrustServiceAsyncStub) -> trust_pb2.GetTrustResponse:
        return await stub.GetTrust(trust_pb2.GetTrustRequest(), timeout=SECONDS)

    trust = ask_trust(asked, look)
    pem = "".join(
        x509.load_der_x509_certificate(keeper.certificate)
        .public_bytes(Encoding.PEM)
        .decode("ascii")
        for keeper in trust.keepers
    )
    if as_json:
        write_json({"fleet_name": trust.fleet_name, "server_name": MEMBER_NAME, "pem": pem})
    else:
        say(pem.rstrip("\n"))
    return ExitCode.OK

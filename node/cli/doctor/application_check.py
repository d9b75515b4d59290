"""The ports for applications on other machines, called as they are called there."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from kakeya import Card
from kakeya_fleet.fleet.diagnosis import applications
from kakeya_fleet.fleet.diagnosis.finding import Finding
from kakeya_fleet.node.cli.doctor.asked_trust import asked_trust
from kakeya_fleet.node.cli.doctor.site import ANSWER_SECONDS, Site
from kakeya_fleet.node.config.config import split_address
from kakeya_fleet.node.trust.certificates import MEMBER_NAME
from kakeya_fleet.node.trust.membership_files import pem_of
from kakeya_fleet.node.trust.tls import application_context

GRPC, HTTPS = "gRPC", "HTTPS"


async def check(site: Site) -> list[Finding]:
    """A handshake at each address of the card, by what `fleet certificate` prints."""
    trust = await asked_trust(site, applications.CHECK)
    if isinstance(trust, Finding):
        return [trust]
    if trust is None or site.node is None:
        return applications.applications(None)
    authorities = b"".join(pem_of(each.certificate) for each in trust.keepers).decode("ascii")
    return applications.applications(
        await asyncio.gather(*(_way(authorities, *each) for each in _called(site.node.card)))
    )


def _called(card: Card) -> Sequence[tuple[str, str, int]]:
    """Protocol, host and port of every way in."""
    hosts = dict.fromkeys(split_address("address", each)[0] for each in card.addresses)
    ports = ((GRPC, card.applications_port), (HTTPS, card.https_port))
    return [(protocol, host, port) for protocol, port in ports if port for host in hosts]


async def _way(authorities: str, protocol: str, host: str, port: int) -> applications.Way:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    context = application_context(authorities, "h2" if protocol == GRPC else "http/1.1")
    # Clients of gRPC ask for a member by the name that all have, those of HTTP for what they call.
    name = MEMBER_NAME if protocol == GRPC else host
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _OTHER_NAMES:
            return applications.Way(protocol, address, is_named=False)
        return applications.Way(protocol, address, f"its certificate: {error.verify_message}")
    except TimeoutError:
        return applications.Way(protocol, address, "nothing answers there")
    except OSError as error:
        return applications.Way(protocol, address, error.strerror or str(error))
    writer.transport.abort()
    return applications.Way(protocol, address)


# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL's x509_vfy.h.
_OTHER_NAMES = frozenset({62, 64})

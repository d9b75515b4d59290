"""What a server tells gRPC at each handshake: certificates when they are others, else nothing."""

from __future__ import annotations

import asyncio
import ssl
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from kakeya_fleet.node.trust.tls import RenewedCertificates, client_context
from scripts.attack.http2_frames import PREFACE
from scripts.attack.streams import Refused, exchanged
from scripts.attack.tls_connections import context_of
from tests.support.breadth import wide
from tests.support.trusted_nodes import fleet_of, renew

SERVER = """
import asyncio, sys, time
from pathlib import Path
import grpc.aio
from kakeya_fleet.node.trust.membership_files import MembershipFiles
from kakeya_fleet.node.trust.tls import server_credentials
from kakeya_fleet.node.trust.trust import Trust

async def main():
    trust = Trust.open(MembershipFiles(Path(sys.argv[1])), sys.argv[2], time.time)
    server = grpc.aio.server()
    print(server.add_secure_port("127.0.0.1:0", server_credentials(trust)), flush=True)
    await server.start()
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)

asyncio.run(main())
"""
CALLERS, TRIES = 64, [4, wide(12)]
"""12 end a server that renews its certificates at each handshake two times of three; that it does
not do so is asked of `RenewedCertificates` too."""
CONTEXTS = 60
"""So many find a file of which half was replaced a dozen times."""


def test_gets_certificates_once_they_are_others(tmp_path: Path) -> None:
    keeper, member, other = fleet_of(tmp_path, 3)
    renewed = RenewedCertificates(member)
    assert renewed() is None
    renew(member, keeper)
    assert renewed() is not None
    assert renewed() is None
    authority = member.ledger.authorities
    keeper.name_keeper(other.node_id, other.make_authority())
    member.merge(keeper.ledger.statements)
    assert member.ledger.authorities != authority
    assert renewed() is not None


@pytest.mark.parametrize("tries", TRIES)
async def test_callers_who_connect_at_once_end_no_server(tmp_path: Path, tries: int) -> None:
    (own,) = fleet_of(tmp_path / "own", 1)
    (stranger,) = fleet_of(tmp_path / "others", 1)
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", SERVER, str(tmp_path / "own" / "0"), own.node_id),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    address = f"127.0.0.1:{(await server.stdout.readline()).decode().strip()}"
    contexts = [context_of(own.files.member_file), context_of(stranger.files.member_file)]

    async def knocks(number: int) -> None:
        for _ in range(tries):
            with suppress(Refused):
                await exchanged(
                    address,
                    PREFACE,
                    half_closes=False,
                    silence_seconds=0.05,
                    tls=contexts[number % len(contexts)],
                )

    await asyncio.gather(*map(knocks, range(CALLERS)))
    assert server.returncode is None
    server.stdin.close()
    assert await server.wait() == 0


def test_who_connects_while_a_certificate_is_renewed_shows_the_old_or_the_new_one(
    tmp_path: Path,
) -> None:
    """Certificate and key come of one file, which is read twice."""
    keeper, member = fleet_of(tmp_path, 2)
    file = member.files.member_file
    pairs = [file.read_bytes()]
    renew(member, keeper)
    pairs.append(file.read_bytes())
    over = threading.Event()

    def keeps_renewing() -> None:
        while not over.is_set():
            for pair in pairs:
                new = file.with_name("new.pem")
                new.write_bytes(pair)
                new.replace(file)

    beside = threading.Thread(target=keeps_renewing)
    beside.start()
    try:
        for _ in range(CONTEXTS):
            client_context(member)
    finally:
        over.set()
        beside.join()


def test_a_file_whose_key_is_anothers_is_refused_though(tmp_path: Path) -> None:
    _, member = fleet_of(tmp_path, 2)
    _, other = fleet_of(tmp_path / "others", 2)
    file = member.files.member_file
    key, certificate = other.member.key_pem, member.member.certificate_pem
    file.write_bytes(key + certificate)
    with pytest.raises(ssl.SSLError, match="KEY_VALUES_MISMATCH"):
        client_context(member)

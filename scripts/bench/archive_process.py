"""An archive in a process of its own, as a node serves it.

    python -m scripts.bench.archive_process 512MiB [--drafter NAME=FOLDER] [--member STATE]

Prints its port, and ends when its standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch

from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.config.role_spec import archive_bytes
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.served_archive import ServedArchive
from kakeya_fleet.node.trust.trust import Trust
from scripts.support.child_process import Behind, ChildProcess
from scripts.support.trusted_pair import member_at

HOST = "127.0.0.1"


class ArchiveProcess(ChildProcess):
    """The process from outside; `address` is host:port."""

    def __init__(
        self,
        amount: str,
        drafters: Mapping[str, Path],
        threads: int = 1,
        *,
        host: str = HOST,
        behind: Behind = list,
        member: Path | None = None,
    ) -> None:
        """Waits until it serves at `host`, with so many threads. Raises `ChildProcessError`.

        It serves members alone, by TLS, as the `member` whose state directory that is.
        """
        words = [amount, "--threads", str(threads), "--host", host]
        for name, folder in drafters.items():
            words += ["--drafter", f"{name}={folder}"]
        if member is not None:
            words += ["--member", str(member)]
        super().__init__("scripts.bench.archive_process", words, behind)
        self.address = f"{host}:{self.hear()}"


async def serve(amount: str, drafters: Mapping[str, Path], host: str, trust: Trust | None) -> None:
    """Serves until the standard input ends."""
    metrics = NodeMetrics()
    role = await ServedArchive.start(
        archive_bytes(amount),
        drafters,
        metrics,
        time.monotonic,
        host=host,
        allowances=Allowances(Limits(), metrics),
        trust=trust,
    )
    print(role.offer.port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await role.close()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("amount", help="bytes, such as 512MiB")
    parser.add_argument("--drafter", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--host", default=HOST)
    parser.add_argument("--member", type=Path, help="state directory of a member of a fleet")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    named = (entry.partition("=") for entry in arguments.drafter)
    drafters = {name: Path(folder) for name, _, folder in named}
    trust = member_at(arguments.member) if arguments.member is not None else None
    asyncio.run(serve(arguments.amount, drafters, arguments.host, trust))


if __name__ == "__main__":
    main()

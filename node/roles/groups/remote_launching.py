"""Command lines that start ranks on other hosts. No test of this repository runs them.

`ssh` starts the rank of a gloo group: the other host needs this program at the same
path, with the same Python, a login without a password, and the model by the same
name. The nonce comes to it over ssh's standard input, as command lines can be
read by everyone on a host. `mlx.launch` starts a ring or jaccl group, all of its
ranks at once; it offers no such way, so that there the nonce is a variable in
the command line of ssh on this host and of the shell on the others. Its exit status says
nothing: the ranks' own connections tell whether they live.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from kakeya_fleet.fleet.hostfiles.hostfile import Host
from kakeya_fleet.node.roles.groups.launching import MODULE, Launch, rank_command
from kakeya_fleet.node.roles.groups.rank_environment import NONCE

SSH_SETTINGS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5")


def over_ssh(
    rank: int, host: Host, variables: Mapping[str, str], nonce: bytes, folder: Path
) -> Launch:
    """The rank's process on `host`, in the folder `folder` there."""
    words = shlex.join(["env", *(f"{name}={value}" for name, value in variables.items())])
    script = (
        f"cd {shlex.quote(str(folder))} && read -r {NONCE} && export {NONCE}"
        f" && exec {words} {shlex.join(rank_command())}"
    )
    options = [word for setting in SSH_SETTINGS for word in ("-o", setting)]
    command = ["ssh", "-T", *options, "--", host.ssh, script]
    return Launch(f"rank {rank} on {host.ssh}", command, {}, f"{nonce.hex()}\n".encode())


def by_mlx(hostfile: Path, backend: str, variables: Mapping[str, str], folder: Path) -> Launch:
    """All ranks of a group of MLX; `variables` are the same for each of them."""
    command = [str(Path(sys.executable).with_name("mlx.launch"))]
    command += ["--hostfile", str(hostfile), "--backend", backend]
    command += ["--cwd", str(folder), "--python", sys.executable]
    for name, value in variables.items():
        command += ["--env", f"{name}={value}"]
    return Launch("mlx.launch", [*command, "--", "-m", MODULE], {})

"""`fleet dashboard` in a fleet with an authority: its process gets keys where nobody else looks."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kakeya_fleet.node.cli.fleet.dashboard_process import BUILT_FILES
from kakeya_fleet.node.trust.tls import server_credentials
from tests.support import scripted_node as scripted
from tests.support.trusted_nodes import fleet_of

BUILT = any((folder / "server" / "main.mjs").is_file() for folder in BUILT_FILES)
pytestmark = pytest.mark.skipif(not BUILT, reason="the dashboard is not built: make dashboard")


async def test_it_watches_as_a_member_and_no_key_is_on_a_command_line(tmp_path: Path) -> None:
    (own,) = fleet_of(tmp_path / "kakeya", 1)
    node = scripted.ScriptedNode("mini-1", own.node_id)
    await node.start(server_credentials(own))
    scripted.join(node)
    agent = {"name": "mini-1", "address": node.address, "pid": os.getpid()}
    (tmp_path / "kakeya" / "0" / "agent.json").write_text(json.dumps(agent))
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    environment.pop("KAKEYA_STATE", None)
    command = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "kakeya_fleet.node.cli", "dashboard", "--no-open", "--json"),
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert command.stdout is not None
    try:
        async for line in command.stdout:
            told = json.loads(line)
            if told["event"] == "watching":
                break
        assert told == {"event": "watching", "node": node.address}
        key = own.files.owner_key()
        assert f"Bearer {key}" in node.authorizations
        for process in (psutil.Process(command.pid), *psutil.Process(command.pid).children()):
            seen = " ".join([*process.cmdline(), *process.environ().values()])
            assert key not in seen
            assert "PRIVATE" not in seen
    finally:
        command.terminate()
        await command.wait()
        await node.stop()

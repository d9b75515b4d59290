"""A port that is taken is told before the libraries of a node are loaded."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from kakeya_fleet.node.cli.main import run
code = run(sys.argv[1:])
print([name for name in ("aiohttp", "zeroconf", "numpy") if name in sys.modules and
       vars(sys.modules[name]).get("__file__")])
sys.exit(code)
"""


def test_a_port_in_use_is_named_before_a_nodes_libraries_load(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["join", "--json", "--bind", f"127.0.0.1:{port}", "--state", str(tmp_path / "s")]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=False
        )
    told, loaded = done.stdout.splitlines()
    assert done.returncode == 3, done.stderr
    error = json.loads(told)["error"]
    assert error["reason"] == "PORT_IN_USE"
    assert str(port) in error["message"]
    assert loaded == "[]"
    assert not (tmp_path / "s").exists()

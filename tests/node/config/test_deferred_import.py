"""Libraries that an agent may never use are not loaded until it does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run(program: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


DEFERRED = """
import sys, threading
from kakeya_fleet.node.config.deferred_import import defer
defer("colorsys")
import colorsys
assert "rgb_to_hls" not in vars(colorsys)
"""


def test_it_is_loaded_by_the_first_look_and_is_the_module_from_then_on() -> None:
    assert run(DEFERRED + "import colorsys as again; print(again is colorsys)") == "True"
    looked = "f = colorsys.rgb_to_hls; import colorsys as real; print(real.rgb_to_hls is f)"
    assert run(DEFERRED + looked) == "True"
    assert run(DEFERRED + "from colorsys import rgb_to_hls; print(rgb_to_hls(0, 0, 0)[1])") == "0.0"


def test_threads_that_look_at_once_find_one_module() -> None:
    program = DEFERRED + (
        "found = []\n"
        "threads = [threading.Thread(target=lambda: found.append(colorsys.hls_to_rgb))"
        " for _ in range(16)]\n"
        "[each.start() for each in threads]\n"
        "[each.join() for each in threads]\n"
        "print(len(found), len(set(found)))"
    )
    assert run(program) == "16 1"


def test_what_is_not_there_is_as_absent_as_before() -> None:
    absent = "defer('no_such_library')\ntry:\n    import no_such_library\n"
    assert run(DEFERRED + absent + "except ModuleNotFoundError:\n    print('absent')") == "absent"
    missing = "print(hasattr(colorsys, 'no_such_name'))"
    assert run(DEFERRED + missing) == "False"


def test_in_a_block_without_it_imports_fail_and_behind_it_they_do_not() -> None:
    program = """
from kakeya_fleet.node.config.deferred_import import without
try:
    with without("colorsys"):
        import colorsys
except ModuleNotFoundError:
    import colorsys
    print(colorsys.__name__)
"""
    assert run(program) == "colorsys"


def test_an_agent_without_models_loads_nothing_that_it_may_never_use() -> None:
    program = """
import sys
from kakeya_fleet.node.cli.join.command import _load_little
_load_little()
import kakeya_fleet.node.app.agent
import kakeya_fleet.node.cli.join.agent_view
models = "numpy._core", "torch", "mlx", "fractions", "kakeya_fleet.node.roles.groups.running_group"
asked = "aiohttp", "kakeya.client", "kakeya_fleet.node.http.application"
fleets = "zeroconf", "spake2", "cryptography.x509.name"
keys = ("cryptography.hazmat.primitives.serialization.ssh",)
others = "rich.console", "sqlite3.dbapi2", "html.entities"
print([name for name in (*models, *asked, *fleets, *keys, *others) if name in sys.modules])
"""
    assert run(program) == "[]"

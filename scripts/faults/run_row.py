"""One row in a process of its own: `python -m scripts.faults.run_row NUMBER` writes JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

import psutil

from scripts.faults.matrix import ROWS
from scripts.faults.row import NotRunHere, Outcome, Row, Verdict
from scripts.faults.scene import Scene
from scripts.support.agent_process import LocalFleet


def main() -> None:
    """Runs it, and says what came of it as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--watched-seconds", type=float, default=600.0)
    asked = parser.parse_args()
    row = next(each for each in ROWS if each.number == asked.number)
    print(json.dumps(come_of(row, asked.seed, asked.watched_seconds)), flush=True)


def come_of(row: Row, seed: int, watched_seconds: float) -> dict[str, object]:
    """What a row came to, for the report."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        # Else the row's agents would share state, caches and sockets with those of the user.
        os.environ |= {f"XDG_{name}_HOME": f"{folder}/{name}" for name in ("STATE", "CONFIG")}
        with LocalFleet(f"faults-{row.number}", directory=Path(folder) / "fleet") as fleet:
            try:
                outcome, crashed = asyncio.run(_acted(row, fleet, folder, seed, watched_seconds))
            except NotRunHere as reason:
                verdict, told = Verdict.NOT_RUN, {"measured": str(reason), "figures": {}}
            else:
                passed = outcome.passed and not crashed
                verdict = Verdict.PASS if passed else Verdict.MISSED
                told = asdict(outcome) | {"in_the_logs": crashed}
                del told["passed"]
                # Where the row's files were says nothing.
                told["measured"] = str(told["measured"]).replace(f"{folder}/fleet/", "")
    return {
        "row": row.number,
        "fault": row.fault,
        "criterion": row.criterion,
        "verdict": verdict.value,
        **told,
        "seed": seed,
        "seconds": round(time.monotonic() - began, 1),
        "load_average": [round(each, 1) for each in psutil.getloadavg()[:2]],
    }


async def _acted(
    row: Row, fleet: LocalFleet, folder: str, seed: int, watched_seconds: float
) -> tuple[Outcome, list[str]]:
    async with AsyncExitStack() as stack:
        scene = Scene(fleet, Path(folder), stack, seed, watched_seconds)
        outcome = await row.act(scene)
        return outcome, scene.crashed()


if __name__ == "__main__":
    main()

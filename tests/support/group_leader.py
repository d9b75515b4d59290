"""Leads a group of hash ranks, and says whether it lives when it is asked."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

from kakeya_fleet.node.roles.groups import rank_starting
from kakeya_fleet.node.roles.groups.group_settings import GroupLimits, GroupSource
from kakeya_fleet.node.roles.groups.running_group import RunningGroup
from tests.support.rank_groups import hash_rank_command


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


hostfile, silence = Path(sys.argv[1]), float(sys.argv[2])
patch.object(rank_starting, "rank_command", hash_rank_command).start()
source = GroupSource(hostfile, limits=GroupLimits(silence_seconds=silence))
settings = source.settings("hash", dtype="float32", backend="auto")
group = RunningGroup(settings, lambda _reason: None)
verifier = group.ready.result()
say("ready")
for _ in sys.stdin:
    say(verifier.lost or "alive")
group.close()

"""`fleet join` for as long as somebody holds the other end of its standard input.

python -m kakeya_fleet.node.cli.held_agent join --json

Whatever way that process ends, this one hears of it, drains and leaves, as with SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
from threading import Thread

from kakeya_fleet.node.cli.main import main


def _leave_at_the_end_of_input() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    Thread(target=_leave_at_the_end_of_input, daemon=True).start()
    main()

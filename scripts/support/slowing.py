"""Lets another process work for a small part of the time, until standard input ends.

A process of its own: a thread would wait for its interpreter, which collects garbage for longer
than an answer takes, and what it slows would run on meanwhile.

Run as `python -m scripts.support.slowing PID STANDS`, seconds between two times of work; it says
a line once the other one stands.
"""

import os
import select
import signal
import sys

WORKS_SECONDS = 0.005


def slow(pid: int, stands_seconds: float) -> None:
    """Stops and continues `pid` until standard input or that process ends; it is left running."""

    def ended_within(seconds: float) -> bool:
        return bool(select.select([sys.stdin], [], [], seconds)[0])

    try:
        os.kill(pid, signal.SIGSTOP)
        print("slowed", flush=True)
        while not ended_within(stands_seconds):
            os.kill(pid, signal.SIGCONT)
            if ended_within(WORKS_SECONDS):
                return
            os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        print("ended", flush=True)


if __name__ == "__main__":
    slow(int(sys.argv[1]), float(sys.argv[2]))

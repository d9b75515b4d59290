"""`fleet ARGUMENTS` as a copy, for test suites in other languages.

`python -m tests.warm.beside VARIABLES ARGUMENTS`: the copy has this process's streams, and the JSON
object's variables beside this process's own. It is made of the process of TESTS_WARM_FOLDER, which
`make test` gives all suites. Its pid is told here: {"event": "copied", "pid"}. Signals that ask for
an end are passed on to it, and this process ends as it does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Never

from tests.warm.starting import FLEET, WarmStarts


def run(folder: Path, variables: dict[str, str], arguments: list[str]) -> Never:
    """Ends with the copy; is `fleet` itself where a copy would not be what people start."""
    # A cache that is one agent's is not that of the process that all are copies of.
    environment = {**os.environ, **variables}
    warm = WarmStarts(folder)
    if not warm.can_copy(environment):
        warm.close()
        tell_pid(os.getpid())
        os.execve(FLEET[0], [*FLEET, *arguments], environment)
    copy = warm.copy(arguments, environment, (0, 1, 2))
    copy.pass_on_signals()
    tell_pid(copy.pid)
    status = copy.wait() or 0
    warm.close()
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def tell_pid(pid: int) -> None:
    """In one write, which no line of the copy's comes into."""
    os.write(1, (json.dumps({"event": "copied", "pid": pid}) + "\n").encode())


if __name__ == "__main__":
    run(Path(os.environ["TESTS_WARM_FOLDER"]), json.loads(sys.argv[1]), sys.argv[2:])

"""Entry point of `fleet`.

Imports nothing slow at module level, so that `fleet --help` answers at once
and that Ctrl-C while modules load is answered here too.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
# Set by the scripts of `fleet completion`: which shell asks for completions.
SHELL_VARIABLE = "_FLEET_COMPLETE"


def main() -> None:
    """Runs `fleet` and ends the process with the command's exit code."""
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if code == EXIT_INTERRUPTED:
        # The interpreter's own end waits for library threads; nothing is left to save.
        os._exit(code)
    # Nor does it look for garbage among all that the libraries made, a second's work.
    gc.freeze()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code; says expected errors in one sentence."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks is no reason to stop.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        if SHELL_VARIABLE in os.environ:
            from node.cli.completing import complete

            return complete(os.environ[SHELL_VARIABLE], arguments)
        from node.cli.dispatch import dispatch

        return dispatch(arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE

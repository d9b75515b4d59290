"""Entry point of `fleet`.

Imports at module level only what every interpreter has loaded, so that `fleet --help`
answers at once, and that Ctrl-C is answered here before anything else loads.
"""

from __future__ import annotations

# `signal` itself loads enumerations first, and Ctrl-C meanwhile would be a traceback.
import _signal  # type: ignore[import-not-found]  # built in, without a stub
import gc
import os
import sys

# Nor is `typing` there yet.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_INTERRUPTED = 130
# As a shell tells of a process that SIGPIPE ended.
EXIT_BROKEN_PIPE = 141
# Set by the scripts of `fleet completion`: which shell asks for completions.
SHELL_VARIABLE = "_FLEET_COMPLETE"


def main() -> None:
    """Runs `fleet` and ends the process with the command's exit code."""
    _signal.signal(_signal.SIGINT, _end_at_once)
    from kakeya_fleet.node.cli.terminal.streams import OutputLost, drop_output, open_streams

    open_streams()
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except (BrokenPipeError, OutputLost):
        drop_output()
    if code == EXIT_INTERRUPTED:
        # The interpreter's own end waits for library threads; nothing is left to save.
        os._exit(code)
    # Nor does it look for garbage among all that the libraries made, a second's work.
    gc.freeze()
    sys.exit(code)


def _end_at_once(_number: int, _frame: object) -> None:
    """Ctrl-C while modules load: an exception would surface wherever they happen to be."""
    os._exit(EXIT_INTERRUPTED)


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code; says expected errors in one sentence."""
    from kakeya_fleet.node.cli.shell.failure import CommandFailed, report
    from kakeya_fleet.node.cli.terminal.streams import OutputLost

    try:
        code = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except OutputLost as lost:
        message = f"standard output cannot be written ({lost}): free the disk, or print elsewhere."
        return report(CommandFailed("OUTPUT_LOST", message), as_json=False)
    return code


def _run(arguments: Sequence[str]) -> int:
    if SHELL_VARIABLE in os.environ:
        from kakeya_fleet.node.cli.shell.completing import complete

        return complete(os.environ[SHELL_VARIABLE], arguments)
    from kakeya_fleet.node.cli.shell.dispatch import dispatch

    return dispatch(arguments)

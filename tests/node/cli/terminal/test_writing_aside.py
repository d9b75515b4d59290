"""Output that nobody reads, on real pipes: who prints never waits, and knows what was lost."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from io import FileIO

import pytest

from kakeya_fleet.node.cli.terminal.streams import OutputLost, error_file, output_file
from kakeya_fleet.node.cli.terminal.writing_aside import (
    MAX_WAITING_BYTES,
    ErrorsAside,
    OutputAside,
    written_aside,
)

LINE = b"x" * 1023 + b"\n"
MORE_THAN_WAIT = 2 * MAX_WAITING_BYTES // len(LINE)
NOTE = b"lines were lost here"


@pytest.fixture
def pipe() -> Iterator[tuple[FileIO, FileIO]]:
    """Both ends: what is written and who reads."""
    reading, writing = os.pipe()
    with FileIO(reading) as reader, FileIO(writing, "w") as writer:
        yield writer, reader


def read_all(reader: FileIO, until: bytes) -> bytes:
    found = b""
    while not found.endswith(until):
        found += reader.read(1 << 16) or b""
    return found


def test_who_prints_never_waits_and_is_told_that_nobody_reads(
    pipe: tuple[FileIO, FileIO],
) -> None:
    writer, reader = pipe
    output = OutputAside(writer)
    lost = []
    for _ in range(MORE_THAN_WAIT):
        try:
            output.write(LINE)
        except OutputLost as error:
            lost.append(str(error))
    taken = MORE_THAN_WAIT - len(lost)
    assert set(lost) == {"nobody reads it"}
    assert output.lost_count == len(lost)
    assert not output.wait_written(0.0)
    found = b"".join(reader.read(len(LINE)) or b"" for _ in range(taken))
    assert found == LINE * taken
    assert output.wait_written(10.0)
    output.write(b"end\n")
    assert read_all(reader, b"end\n") == b"end\n"


def test_a_log_that_nobody_reads_loses_lines_and_says_how_many_once_it_is_read(
    pipe: tuple[FileIO, FileIO],
) -> None:
    writer, reader = pipe
    errors = ErrorsAside(writer)
    for _ in range(MORE_THAN_WAIT):
        errors.write(LINE)
    lost = errors.lost_count
    assert lost > 0
    whole = b""
    while whole.count(LINE) < MORE_THAN_WAIT - lost:
        whole += reader.read(1 << 16) or b""
    errors.write(b"end\n")
    whole += read_all(reader, b"end\n")
    assert whole.count(LINE) + lost == MORE_THAN_WAIT
    # Its thread may have come to write while lines were still being lost: told are all of them.
    told = re.findall(rb"fleet: (\d+) " + NOTE, whole)
    assert sum(map(int, told)) == lost
    errors.write(b"end\n")
    assert NOTE not in read_all(reader, b"end\n")


def test_a_reader_that_is_gone_is_told_until_a_write_succeeds() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        output = OutputAside(full)
        output.write(LINE)
        assert output.wait_written(10.0)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                output.write(LINE)
            assert output.wait_written(10.0)
        assert output.lost_count == 3


def test_what_is_printed_meanwhile_is_there_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    with written_aside():
        assert sys.stdout.fileno() == 1
        sys.stdout.write("printed\n")
        sys.stderr.write("logged\n")
    assert capfd.readouterr() == ("printed\n", "logged\n")
    assert (output_file().fileno(), error_file().fileno()) == (1, 2)

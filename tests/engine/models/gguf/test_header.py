"""What a header claims costs nothing until it was compared with the file and with limits."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from kakeya_fleet.engine.errors import ArchitectureUnsupported, GgufInvalid, ModelUnusable
from kakeya_fleet.engine.models.gguf.describing import describe
from kakeya_fleet.engine.models.gguf.header import MOST_TENSORS, read_header
from tests.support.breadth import again
from tests.support.raw_gguf import ARRAY, TEXT, Raw, entry, tensor, text, texts, whole

HUGE = 1 << 62
MOST_BYTES = 8 << 20
"""That reading a file of a few hundred bytes may take, whatever it claims."""


def valid() -> Raw:
    """Two tensors, a text, a number and a list."""
    return Raw(
        entries=[
            entry("general.architecture", TEXT, text("llama")),
            whole("llama.block_count", 1),
            texts("tokenizer.ggml.tokens", "a", "b"),
        ],
        tensors=[tensor("one", 8, 4), tensor("two", 8, start=128)],
        data=b"\0" * 160,
    )


def test_what_is_right_is_read(tmp_path: Path) -> None:
    header = read_header(valid().write(tmp_path / "a.gguf"))
    assert header.metadata["tokenizer.ggml.tokens"] == ["a", "b"]
    assert header.metadata["llama.block_count"] == 1
    assert [(each.name, each.shape) for each in header.tensors.values()] == [
        ("one", (4, 8)),
        ("two", (8,)),
    ]
    one, two = header.tensors.values()
    assert (one.byte_count, two.byte_count, two.start - one.start) == (128, 32, 128)


def _array(kind: int, count: int, rest: bytes = b"") -> bytes:
    return entry("key", ARRAY, struct.pack("<IQ", kind, count) + rest)


WRONG: dict[str, tuple[Callable[[Raw], object], str]] = {
    "no GGUF": (lambda raw: setattr(raw, "magic", b"GGML"), "begin with GGUF"),
    "another version": (lambda raw: setattr(raw, "version", 9), "version 9"),
    "another byte order": (lambda raw: setattr(raw, "version", 3 << 24), "big-endian"),
    "tensors without end": (lambda raw: setattr(raw, "tensor_count", HUGE), "claims .* tensors"),
    "as many as there may be": (
        lambda raw: setattr(raw, "tensor_count", MOST_TENSORS),
        "breaks off|bytes of|there is not|dimensions|at most|more than",
    ),
    "entries without end": (lambda raw: setattr(raw, "entry_count", HUGE), "claims .* entries"),
    "a key without end": (
        lambda raw: raw.entries.insert(0, struct.pack("<Q", HUGE) + b"key"),
        "a key of",
    ),
    "a text without end": (
        lambda raw: raw.entries.insert(0, entry("key", TEXT, struct.pack("<Q", HUGE))),
        "key of",
    ),
    "a text beyond the file": (
        lambda raw: raw.entries.append(entry("key", TEXT, struct.pack("<Q", 1 << 20))),
        "breaks off",
    ),
    "a text that is none": (
        lambda raw: raw.entries.append(entry("key", TEXT, text(b"\xff\xfe"))),
        "not UTF-8",
    ),
    "a value of no type": (lambda raw: raw.entries.append(entry("key", 77, b"")), "type 77"),
    "a list of no type": (lambda raw: raw.entries.append(_array(77, 1)), "type 77"),
    "a list of lists": (
        lambda raw: raw.entries.append(_array(ARRAY, 1, struct.pack("<IQ", 4, 0))),
        "arrays within",
    ),
    "a list without end": (lambda raw: raw.entries.append(_array(4, HUGE)), "claims .* elements"),
    "a list beyond the file": (
        lambda raw: raw.entries.append(_array(10, 1 << 20)),
        "breaks off within key",
    ),
    "texts beyond the file": (
        lambda raw: raw.entries.append(_array(TEXT, 1 << 20)),
        "breaks off within key",
    ),
    "a key twice": (lambda raw: raw.entries.append(raw.entries[0]), "twice"),
    "a tensor twice": (lambda raw: raw.tensors.append(tensor("one", 8, start=160)), "twice"),
    "no dimensions": (lambda raw: raw.tensors.append(tensor("x")), "0 dimensions"),
    "dimensions without end": (
        lambda raw: raw.tensors.append(tensor("x", 1, 1, 1, 1, 1)),
        "5 dimensions",
    ),
    "a dimension of nothing": (lambda raw: raw.tensors.append(tensor("x", 8, 0)), "shape"),
    "a shape that overflows": (
        lambda raw: raw.tensors.append(tensor("x", 1 << 33, 1 << 33)),
        "impossible shape",
    ),
    "a type that there is not": (
        lambda raw: raw.tensors.append(tensor("x", 8, kind=99)),
        "type 99, which there is not",
    ),
    "half a block": (lambda raw: raw.tensors.append(tensor("x", 33, kind=8)), "no multiple"),
    "one tensor over another": (
        lambda raw: raw.tensors.append(tensor("x", 8, start=64)),
        "over the bytes of one",
    ),
    "beyond the end": (
        lambda raw: raw.tensors.append(tensor("x", 8, start=1 << 40)),
        "breaks off within x",
    ),
    "an offset that overflows": (
        lambda raw: raw.tensors.append(tensor("x", 8, start=(1 << 64) - 32)),
        "breaks off within x",
    ),
    "a truncated tail": (lambda raw: setattr(raw, "data", raw.data[:-1]), "1 bytes are missing"),
    "an alignment of three": (
        lambda raw: raw.entries.append(whole("general.alignment", 3)),
        "no power of two",
    ),
    "an alignment of nothing": (
        lambda raw: raw.entries.append(whole("general.alignment", 0)),
        "no power of two",
    ),
    "an alignment that is a text": (
        lambda raw: raw.entries.append(entry("general.alignment", TEXT, text("32"))),
        "no power of two",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_refused_by_name(case: str, tmp_path: Path) -> None:
    spoil, words = WRONG[case]
    raw = valid()
    spoil(raw)
    path = raw.write(tmp_path / "spoilt.gguf")
    tracemalloc.start()
    try:
        with pytest.raises(GgufInvalid, match=words) as refused:
            read_header(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(path) in str(refused.value)
    assert peak < MOST_BYTES


def test_a_type_that_is_not_read_is_named(tmp_path: Path) -> None:
    raw = valid()
    raw.tensors.append(tensor("x", 256, kind=16, start=160))
    with pytest.raises(ArchitectureUnsupported, match=r"IQ2_XXS.*llama-quantize"):
        read_header(raw.write(tmp_path / "a.gguf"))


@pytest.mark.parametrize("length", range(0, len(valid().content()), 7))
def test_every_beginning_of_a_file_is_refused(length: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(valid().content()[:length])
    with pytest.raises(GgufInvalid):
        read_header(path)


@again(4)
def test_no_mutation_is_taken_or_costs_memory(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    path = tmp_path / "mutated.gguf"
    whole_file = valid().content()
    tracemalloc.start()
    try:
        for _ in range(800):
            content = bytearray(whole_file)
            for _ in range(draw.randint(1, 4)):
                at = draw.randrange(len(content) - 8)
                if draw.random() < 0.5:
                    content[at] = draw.randrange(256)
                else:
                    content[at : at + 8] = draw.choice((HUGE, (1 << 64) - 1, 0, 1 << 31)).to_bytes(
                        8, "little"
                    )
            path.write_bytes(content)
            try:
                describe(read_header(path))
            except ModelUnusable:
                continue
            except Exception as error:
                raise AssertionError(f"seed {seed}") from error
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES, f"seed {seed}"

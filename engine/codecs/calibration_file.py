"""A calibration as a file: an npz that is read without trust.

A zip of arrays, stored as they are, little-endian: no objects, nothing compressed, each as long as
its header says, so that a file can make nothing larger than itself.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from kakeya_fleet.engine.codecs.calibration import BITS, MEND, Calibration
from kakeya_fleet.engine.codecs.refused import CalibrationRefused

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

VERSION = 1
MOST_BYTES = 64 << 20
_ARRAYS = ("directions", "middles", "reaches", "frequencies")
_DTYPES = {
    "version": "<i8",
    "digest": "|u1",
    # Half precision is enough for what decides how far a rounding error is moved.
    "directions": "<f2",
    "middles": "<f4",
    "reaches": "<f4",
    "frequencies": "<f4",
    **{f"{name}{bits}": "<f4" for name in ("edges", "levels") for bits in BITS},
}
"""Of each array in the file."""
_HEAD_START = 10
_HEAD = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(?P<descr>[<|][a-z][0-9])', 'fortran_order': False, "
    rb"'shape': \((?P<shape>(?:[0-9]{1,9},? ?){1,8})\), \} *\n",
    re.DOTALL,
)
"""As numpy writes it, and nothing else: no expression is evaluated."""


def write_calibration(path: Path, found: Calibration) -> None:
    """Writes the file; `directions` are rounded to float16."""
    arrays: dict[str, NDArray[Any]] = {
        "version": np.array([VERSION]),
        "digest": np.frombuffer(bytes.fromhex(found.model_digest), np.uint8),
        **{name: getattr(found, name) for name in _ARRAYS},
        **{f"edges{bits}": found.edges[bits] for bits in BITS},
        **{f"levels{bits}": found.levels[bits] for bits in BITS},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array.astype(_DTYPES[name]), version=(1, 0))
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue())


def read_calibration(path: Path, model_digest: str) -> Calibration:
    """The calibration in the file, if it is of the model with these weights.

    Raises `CalibrationRefused`, with the cause and what to do, where there is none, where it is
    damaged, of another version, or of another model.
    """
    if not path.is_file():
        raise CalibrationRefused(f"{path} has no calibration; {MEND}")
    if path.stat().st_size > MOST_BYTES:
        raise CalibrationRefused(f"{path} is larger than any calibration; {MEND}")
    try:
        arrays = _arrays(path.read_bytes())
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError) as error:
        raise CalibrationRefused(f"{path} is no calibration: {error}; {MEND}") from error
    if arrays["version"].tolist() != [VERSION]:
        raise CalibrationRefused(f"{path} is of another version than {VERSION}; {MEND}")
    if arrays["digest"].tobytes().hex() != model_digest:
        raise CalibrationRefused(f"{path} is of another model than {model_digest[:12]}; {MEND}")
    return Calibration(
        model_digest,
        edges={bits: arrays[f"edges{bits}"] for bits in BITS},
        levels={bits: arrays[f"levels{bits}"] for bits in BITS},
        **{name: arrays[name].astype(np.float32) for name in _ARRAYS},
    )


def _arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """All arrays of the zip. Raises `ValueError` and zip's errors."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {member.filename: member for member in archive.infolist()}
        if len(archive.infolist()) != len(_DTYPES) or set(members) != {f"{n}.npy" for n in _DTYPES}:
            raise ValueError("its arrays are not those of a calibration")
        for member in members.values():
            if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
                raise ValueError("its arrays are compressed or encrypted")
            if member.file_size > len(content):
                raise ValueError("an array is longer than the file")
        return {name: _array(archive.read(members[f"{name}.npy"]), name) for name in _DTYPES}


def _array(content: bytes, name: str) -> NDArray[Any]:
    """One array of the format npy, 1.0. Raises `ValueError`."""
    head = _HEAD.match(content)
    if head is None or head["descr"].decode() != _DTYPES[name]:
        raise ValueError(f"{name} has numbers of another kind")
    shape = tuple(int(each) for each in head["shape"].split(b",") if each.strip())
    begin = _HEAD_START + int.from_bytes(content[_HEAD_START - 2 : _HEAD_START], "little")
    dtype = np.dtype(_DTYPES[name])
    # Counted without numpy: a shape may be larger than any machine's numbers.
    if math.prod(shape) * dtype.itemsize != len(content) - begin:
        raise ValueError(f"{name} is not as long as it says")
    return np.frombuffer(content, dtype, offset=begin).reshape(shape)

"""CRC-32C (Castagnoli; RFC 3720, appendix B.4) of the bytes of tensors."""

from __future__ import annotations

import google_crc32c
import numpy as np


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The checksum of `data`, 0 to 2**32 - 1."""
    # The library takes no memory that can be written, unless an array shows it.
    readable = data if isinstance(data, bytes) else np.frombuffer(data, np.uint8)
    return int(google_crc32c.value(readable))

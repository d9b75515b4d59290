"""What a codec cannot pack, or did not pack."""

from __future__ import annotations


class CodecRefused(ValueError):
    """Numbers that are not finite or too large, heads of a size it cannot take, foreign bytes."""


class CalibrationRefused(CodecRefused):
    """A file of calibration that is none, is damaged, or is of another model."""

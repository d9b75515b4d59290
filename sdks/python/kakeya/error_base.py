"""What every error of the client has. The others are in `kakeya.errors`.

Each has a `reason` in UPPER_SNAKE_CASE, a `code` (a canonical status such as
"NOT_FOUND"), `metadata` for programs, `attempts` (how often the call was sent),
and reads as the problem and how to mend it: "PROBLEM; MEND" where the node told the
two apart as `problem` and `mend`. `field` names the value at fault. A reason that
this client does not know keeps its name and takes the class of its status code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class KakeyaError(Exception):
    """Base of all errors of this package."""

    default_reason: ClassVar[str] = "KAKEYA_ERROR"
    default_code: ClassVar[str] = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        code: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason or self.default_reason
        self.code = code or self.default_code
        self.metadata = dict(metadata or {})
        self.retry_after_seconds = retry_after_seconds
        self.attempts = 1

    def __str__(self) -> str:
        return f"{self.problem.rstrip('.')}; {self.mend}" if self.mend else self.problem

    @property
    def problem(self) -> str:
        """What is wrong, without `mend`."""
        return str(self.args[0])

    @property
    def mend(self) -> str:
        """How to mend it, a few words; empty where `problem` says so itself."""
        return self.metadata.get("mend", "")

    @property
    def field(self) -> str:
        """The parameter, or the part of a chat, that is at fault; empty for none."""
        return self.metadata.get("field", "")

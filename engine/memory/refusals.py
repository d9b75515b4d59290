"""What is said where sessions together leave no room."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.engine.errors import OutOfKvMemory


@dataclass(frozen=True, slots=True)
class Shortage:
    """`needed_bytes` are asked for where `free_bytes` of `budget_bytes` are free.

    In `wait_seconds` the next session may be evicted.
    """

    needed_bytes: int
    free_bytes: int
    budget_bytes: int
    wait_seconds: float

    def of_a_new_session(self, beside: int = 0) -> OutOfKvMemory:
        """Refuses one; a fork's origin takes `beside` bytes that stay."""
        needed, budget = self.needed_bytes, self.budget_bytes
        if needed + beside > budget:
            origin = f" beside the {beside} of its origin" if beside else ""
            return OutOfKvMemory(
                f"a session of {needed} K/V bytes never fits the budget of {budget}{origin};"
                " ask for a smaller window or a shorter history",
                **self._figures,
            )
        return OutOfKvMemory(
            f"a session needs {needed} K/V bytes and {self.free_bytes} are free;"
            f" close a session or retry in {self.wait_seconds:.0f} s",
            retry_after_seconds=f"{self.wait_seconds:.3f}",
            **self._figures,
        )

    def of_waking(self) -> OutOfKvMemory:
        """Refuses one that goes on, and loses nothing, the memory that it takes at once.

        Which it gave back while it was at rest, or asks room in.
        """
        return OutOfKvMemory(
            f"the session needs {self.needed_bytes} K/V bytes at once to go on, and"
            f" {self.free_bytes} of {self.budget_bytes} are free; its history stays as it is:"
            f" close another, or retry in {self.wait_seconds:.0f} s",
            retry_after_seconds=f"{self.wait_seconds:.3f}",
            **self._figures,
        )

    def of_growth(self) -> OutOfKvMemory:
        """Refuses a session that lives, and stays as it is, the memory of its next positions."""
        return OutOfKvMemory(
            f"the history needs {self.needed_bytes} K/V bytes more and {self.free_bytes} of"
            f" {self.budget_bytes} are free, the session stays as it is: close another,"
            f" retry in {self.wait_seconds:.0f} s, or open one with sink_window",
            retry_after_seconds=f"{self.wait_seconds:.3f}",
            **self._figures,
        )

    @property
    def _figures(self) -> dict[str, str]:
        return {"needed_bytes": str(self.needed_bytes), "free_bytes": str(self.free_bytes)}

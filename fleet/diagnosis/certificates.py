"""Whether a member's certificate is renewed in time, and who could renew it."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, counted, not_run, ok

CHECK = "certificate"
ENCRYPTION = "encryption"
DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Membership:
    """Of a node in a fleet with an authority; times in seconds, `left` until its end.

    `keeper_count` are the fleet's keepers, `reached_count` those of them that answer here;
    `tensors_in_clear` as the node was started.
    """

    left: float
    life: float
    keeper_count: int
    reached_count: int
    tensors_in_clear: bool = False


def certificates(membership: Membership | None) -> list[Finding]:
    """Findings of its life and of the fleet's keepers; None for a fleet without an authority."""
    if membership is None:
        return [not_run(CHECK, "The fleet has no authority: whoever is on its network is in it.")]
    return [_life(membership), *_keepers(membership), *_clear(membership)]


def _life(membership: Membership) -> Finding:
    days = f"{membership.left / DAY:.1f} days"
    mend = "Start a keeper: `fleet members` says who is one; or join again with a new code."
    if membership.left <= 0:
        return Finding(CHECK, Level.PROBLEM, "it has ended", "No member takes it any more.", mend)
    # Renewal is tried from half of its life on.
    if membership.left < membership.life / 2 - DAY / 2:
        level = Level.PROBLEM if membership.left < DAY else Level.WARNING
        return Finding(
            CHECK, level, f"it ends in {days}", "No keeper has renewed it in half its life.", mend
        )
    return ok(CHECK, f"it is good for {days}")


def _clear(membership: Membership) -> list[Finding]:
    if not membership.tensors_in_clear:
        return []
    return [
        Finding(
            ENCRYPTION,
            Level.WARNING,
            "tensors go in the clear",
            "The node was started with --trusted-network: its rings and groups carry hidden states,"
            " keys and values between hosts unencrypted, for everyone on that network to read.",
            "Join without --trusted-network: links then go by gRPC, which is encrypted.",
        )
    ]


def _keepers(membership: Membership) -> list[Finding]:
    count, reached = membership.keeper_count, membership.reached_count
    if not reached:
        return [
            Finding(
                CHECK,
                Level.WARNING,
                "no keeper answers",
                "The fleet runs on, but nobody is let in, and no certificate is renewed: this "
                f"node's ends in {max(0.0, membership.left) / DAY:.1f} days, each other one within "
                "a week of its last renewal.",
                "Start a keeper: `fleet members` says who is one.",
            )
        ]
    if count < 2:
        return [
            Finding(
                CHECK,
                Level.WARNING,
                "the fleet has one keeper",
                "Were it lost, nobody could be let in, and all certificates would end.",
                "Make another one: `fleet keeper add NODE`.",
            )
        ]
    return [ok(CHECK, f"{counted(reached, 'keeper')} of {count} answer")]

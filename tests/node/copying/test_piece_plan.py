"""Which piece is asked of whom: each once while all goes well, and again when it does not."""

from __future__ import annotations

import random

from kakeya_fleet.engine.models.model_manifest import Piece
from kakeya_fleet.node.copying.piece_plan import LATE_SECONDS, PiecePlan


def pieces(count: int) -> list[Piece]:
    return [Piece(number, "model.safetensors", number, 1, bytes(32)) for number in range(count)]


def test_each_piece_is_asked_for_once_in_order_by_whoever_has_time() -> None:
    plan = PiecePlan(pieces(4))
    asked = [plan.next_for(source, 0.0) for source in ("a", "b", "a", "b")]
    assert asked == pieces(4)
    assert plan.next_for("a", 0.0) is None
    assert not plan.is_done
    assert all(plan.arrived(piece) for piece in pieces(4))
    assert plan.is_done


def test_what_one_gives_up_comes_next_from_another() -> None:
    plan = PiecePlan(pieces(3))
    first = plan.next_for("a", 0.0)
    assert first is not None
    plan.given_up("a", first)
    assert plan.next_for("b", 0.0) == first
    # A source that comes too late with its fault takes nothing from another.
    plan.given_up("a", first)
    assert plan.next_for("a", 0.0) == pieces(3)[1]


def test_a_late_piece_is_asked_of_one_other_and_counts_once() -> None:
    plan = PiecePlan(pieces(1))
    (piece,) = pieces(1)
    assert plan.next_for("a", 0.0) == piece
    assert plan.next_for("b", LATE_SECONDS - 0.1) is None
    assert plan.next_for("a", LATE_SECONDS) is None
    assert plan.next_for("b", LATE_SECONDS) == piece
    assert plan.next_for("c", 9 * LATE_SECONDS) is None
    plan.given_up("a", piece)
    assert plan.next_for("c", 9 * LATE_SECONDS) == piece
    assert plan.arrived(piece)
    assert not plan.arrived(piece)
    plan.given_up("b", piece)
    assert plan.is_done


def test_every_piece_arrives_whatever_sources_do_as_long_as_one_is_right() -> None:
    seed = random.randrange(1 << 32)
    order = random.Random(seed)
    plan, now, arrived = PiecePlan(pieces(50)), 0.0, set()
    under_way: list[tuple[str, Piece]] = []
    for _ in range(100_000):
        if plan.is_done:
            break
        now += order.random()
        source = order.choice("abc")
        piece = plan.next_for(source, now)
        if piece is not None:
            under_way.append((source, piece))
        if under_way and order.random() < 0.7:
            source, piece = under_way.pop(order.randrange(len(under_way)))
            if (source == "a" or order.random() < 0.2) and plan.arrived(piece):
                assert piece.number not in arrived, seed
                arrived.add(piece.number)
            plan.given_up(source, piece)
    assert plan.is_done, seed
    assert arrived == set(range(50)), seed

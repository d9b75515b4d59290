"""What the latest session found is known for a while."""

from __future__ import annotations

from kakeya_fleet.engine.speculation.latest_book import KEPT_SECONDS, LatestBook


def test_sessions_know_what_the_latest_of_their_kind_found_for_a_while() -> None:
    now = 5.0
    book: LatestBook[tuple[str, str], float] = LatestBook(lambda: now)
    assert book.get(("verifier", "proposer")) is None
    book.put(("verifier", "proposer"), 1.0)
    now += KEPT_SECONDS - 1.0
    assert book.get(("verifier", "proposer")) == 1.0
    assert book.get(("another", "proposer")) is None
    book.put(("verifier", "proposer"), 2.0)
    now += 1.0
    assert book.get(("verifier", "proposer")) == 2.0
    now += KEPT_SECONDS
    assert book.get(("verifier", "proposer")) is None
    book.put(("verifier", "another"), 3.0)
    assert list(book._found) == [("verifier", "another")]

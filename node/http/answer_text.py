"""Committed tokens to the text that a client sees, with the tokens behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kakeya import Alternative, Tokens
from kakeya.text import Detokenizer
from kakeya_fleet.node.http.stop_strings import StopStrings


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token of an answer; `offset` is where its text begins in the answer's, in characters."""

    token_id: int
    log_probability: float
    alternatives: tuple[Alternative, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The next text of an answer, and the tokens whose text is complete with it."""

    text: str
    tokens: tuple[ScoredToken, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens)


class AnswerText:
    """The text of one answer. Nothing that it returned is taken back.

    `hidden_ids` end an answer and have no text. Tokens are kept only where they
    come with log-probabilities.
    """

    def __init__(
        self, detokenizer: Detokenizer, stops: Sequence[str], hidden_ids: Collection[int]
    ) -> None:
        self._detokenizer = detokenizer
        self._stops = StopStrings(stops)
        self._hidden_ids = frozenset(hidden_ids)
        self._waiting: deque[tuple[ScoredToken, int]] = deque()
        self._decoded = 0
        self._shown = 0
        self.token_count = 0
        """Tokens up to the one that completed a stop string, ends included."""

    @property
    def stopped(self) -> bool:
        """Whether a stop string came: what follows is not part of the answer."""
        return self.stop_string is not None

    @property
    def stop_string(self) -> str | None:
        """The one that came; None as long as none did."""
        return self._stops.stopped_at

    def push(self, tokens: Tokens) -> Piece:
        """What a block adds."""
        shown: list[str] = []
        scored: list[ScoredToken] = []
        for place, token_id in enumerate(tokens.token_ids):
            if self.stopped:
                break
            self.token_count += 1
            if token_id in self._hidden_ids:
                continue
            text = self._detokenizer.push((token_id,))
            if tokens.log_probabilities:
                token = ScoredToken(
                    token_id,
                    tokens.log_probabilities[place],
                    tokens.alternatives[place] if tokens.alternatives else (),
                    self._decoded,
                )
                self._waiting.append((token, self._decoded + len(text)))
            self._decoded += len(text)
            shown.append(self._stops.push(text))
            self._shown += len(shown[-1])
            scored.extend(self._complete())
        return Piece("".join(shown), tuple(scored))

    def finish(self) -> Piece:
        """The rest, when no more tokens come."""
        text = ""
        if not self.stopped:
            text = self._stops.push(self._detokenizer.flush())
            text += self._stops.flush()
        self._shown += len(text)
        # Tokens that a stop string cut in two stay, those behind the cut do not.
        rest = [token for token, _end in self._waiting if token.offset < self._shown]
        if not self.stopped:
            rest = [token for token, _end in self._waiting]
        self._waiting.clear()
        return Piece(text, tuple(rest))

    def _complete(self) -> list[ScoredToken]:
        """Tokens whose text was shown to its end."""
        complete: list[ScoredToken] = []
        while self._waiting and self._waiting[0][1] <= self._shown and not self.stopped:
            complete.append(self._waiting.popleft()[0])
        return complete

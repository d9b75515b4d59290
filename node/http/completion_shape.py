"""Answers in the shape of /v1/completions."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya_fleet.node.http.answer_shape import Chunk
from kakeya_fleet.node.http.answer_text import ScoredToken
from kakeya_fleet.node.http.answering import Delta, End
from kakeya_fleet.node.http.prompt_reading import PromptProgress
from kakeya_fleet.node.http.shape_facts import ShapeFacts
from kakeya_fleet.node.http.token_texts import Decode, completion_log_probabilities
from kakeya_fleet.node.http.usage import fleet_report, usage


class CompletionShape:
    """One request's answers; `echoes` are the texts of the prompts that begin them, if wanted."""

    def __init__(
        self, facts: ShapeFacts, decode: Decode, choices: int, echoes: Sequence[str] = ()
    ) -> None:
        """Each prompt has `choices` answers."""
        self._facts = facts
        self._decode = decode
        self._choices = choices
        self._echoes = tuple(echoes)

    def opening(self) -> Sequence[Chunk]:
        """The prompts, when they are to be repeated."""
        if not self._echoes:
            return []
        return [self._chunk(index, self._echo(index)) for index in range(self._facts.answer_count)]

    def progress(self, progress: PromptProgress) -> Sequence[Chunk]:
        """One chunk, which says nothing of an answer, as the server of llama.cpp has it."""
        return [self._chunk(0, "") | {"prompt_progress": progress.told()}]

    def delta(self, delta: Delta) -> Sequence[Chunk]:
        """One chunk."""
        return [self._chunk(delta.index, delta.piece.text, tokens=delta.piece.tokens)]

    def waiting(self) -> Sequence[Chunk]:
        """Nothing."""
        return []

    def end(self, end: End) -> Sequence[Chunk]:
        """Why it ended."""
        last = self._chunk(end.index, "", finish_reason=end.finish_reason)
        return [last | {"kakeya": fleet_report([end])}]

    def closing(self, ends: Sequence[End]) -> Sequence[Chunk]:
        """The usage, when it was asked for."""
        if not self._facts.include_usage:
            return []
        counted = usage(self._facts.prompt_token_count, ends)
        return [self._head() | {"choices": [], "usage": counted}]

    def whole(self, deltas: Sequence[Delta], ends: Sequence[End]) -> Chunk:
        """The body of all answers."""
        choices: list[Chunk] = []
        for end in ends:
            own = [delta.piece for delta in deltas if delta.index == end.index]
            text = self._echo(end.index) + "".join(piece.text for piece in own)
            tokens = [token for piece in own for token in piece.tokens]
            choices.append(self._choice(end.index, text, tokens, end.finish_reason))
        return self._head() | {
            "choices": choices,
            "usage": usage(self._facts.prompt_token_count, ends),
            "kakeya": fleet_report(ends),
        }

    def _echo(self, index: int) -> str:
        return self._echoes[index // self._choices] if self._echoes else ""

    def _choice(
        self, index: int, text: str, tokens: Sequence[ScoredToken], finish_reason: str | None
    ) -> Chunk:
        has_scores = bool(tokens) or (self._facts.scored and finish_reason is not None)
        return {
            "index": index,
            "text": text,
            "logprobs": completion_log_probabilities(tokens, self._decode) if has_scores else None,
            "finish_reason": finish_reason,
        }

    def _chunk(
        self,
        index: int,
        text: str,
        *,
        tokens: Sequence[ScoredToken] = (),
        finish_reason: str | None = None,
    ) -> Chunk:
        choice = self._choice(index, text, tokens, finish_reason)
        chunk = self._head() | {"choices": [choice]}
        return chunk | {"usage": None} if self._facts.include_usage else chunk

    def _head(self) -> Chunk:
        return self._facts.head("cmpl", "text_completion")

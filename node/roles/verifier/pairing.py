"""The proposers of one session: chosen, connected, tried, dropped, chosen again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from kakeya_fleet.engine.contracts.blocking import Runner
from kakeya_fleet.engine.contracts.draft import ProposerKey
from kakeya_fleet.engine.contracts.verifier import VerifierInfo
from kakeya_fleet.engine.sessions.history import History
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.speculation.generation_report import DropReason
from kakeya_fleet.engine.speculation.roster import Rival, Roster
from kakeya_fleet.engine.speculation.trial_book import TrialBook
from kakeya_fleet.fleet.errors import FleetError, ModelNotFound, NoPlacement
from kakeya_fleet.fleet.placement.plan import Placement, Plan, Trial
from kakeya_fleet.node.links.protocol.changes import LinkLog
from kakeya_fleet.node.roles.verifier.conditioning import Conditioning
from kakeya_fleet.node.roles.verifier.draft_connections import (
    DraftConnections,
    PairingContext,
    key_of,
)
from kakeya_fleet.node.roles.verifier.runtime_wire import SessionSpec, SpeculationChoice

MEETING_SECONDS, LOOK_SECONDS = 2.0, 0.02
"""The way to a node is measured once it is met, by a ping: who names it may be as quick."""


class Pairing:
    """The plan of one session and, while it speculates, its proposers.

    Their sources open with the first generation and stay for the session. With
    speculation auto the session also tries the plan's `trials` on its own stream, and
    the fastest drafts; where that cannot, in the middle of a generation too, or is late, the
    plan's stand-in does. One that decodes alone, or whose proposer is dropped, is planned
    anew at its next generation. A proposer that takes context vectors gets those of the
    attached session, which makes them for one proposer at most: the planned one, else
    the first of the trials that takes any, whose encoder nobody waits for. Where the
    planned one's cannot be had the session decodes alone, dropped for FEATURES.
    """

    def __init__(
        self,
        spec: SessionSpec,
        info: VerifierInfo,
        context: PairingContext,
        *,
        inherited: Plan | None = None,
    ) -> None:
        """Plans; takes the `inherited` plan, of a session that runs, when nothing can be planned.

        Raises `NoPlacement`.
        """
        self._context = context
        self._choice = spec.speculation.choice
        self._request = spec.plan_request(context.fleet.self_id, info)
        self._plan = self._planned(inherited)
        self._roster: Roster | None = None
        self._link_log = LinkLog()
        self._conditioning = Conditioning(
            info,
            context.fleet,
            context.proposers,
            context.encoders,
            opening_seconds=context.opening_seconds,
        )
        self._connections = DraftConnections(
            info,
            context,
            self._conditioning,
            self._link_log,
            judging=self.automatic,
        )
        self._hindrance: DropReason | None = None
        self._told: tuple[ProposerKey, bool, Plan] | None = None
        self._closed = False

    @classmethod
    async def of_met(
        cls, spec: SessionSpec, info: VerifierInfo, context: PairingContext
    ) -> Pairing:
        """With a proposer that the session names, once the way to it is measured.

        Raises `NoPlacement`.
        """
        ends_at = asyncio.get_running_loop().time() + MEETING_SECONDS
        request = spec.plan_request(context.fleet.self_id, info)
        while True:
            try:
                return cls(spec, info, context)
            except NoPlacement:
                is_late = asyncio.get_running_loop().time() >= ends_at
                if is_late or not context.planner.is_measuring(request):
                    raise
            await asyncio.sleep(LOOK_SECONDS)

    @property
    def plan(self) -> Plan:
        """The pair that serves the session now, with reasons: another than planned once tried."""
        roster = self._roster
        rival = roster.drafting if roster is not None else None
        planned = self._plan.proposer
        if roster is None or rival is None:
            return self._plan
        if planned is not None and rival.key == key_of(planned) and not roster.is_trying:
            return self._plan
        told = self._told
        if told is None or told[:2] != (rival.key, roster.is_trying):
            told = (rival.key, roster.is_trying, self._told_of(roster, rival.key))
            self._told = told
        return told[2]

    @property
    def drop_reason(self) -> DropReason | None:
        """Why the session decodes alone now; None when it does not."""
        return self._roster.drop_reason if self._roster is not None else self._hindrance

    def is_here(self, proposer: ProposerKey) -> bool:
        """Whether a proposer is one of this node."""
        return proposer[0] == self._context.fleet.self_id

    @property
    def link_log(self) -> LinkLog:
        """What carried the session's feature links, and when that changed."""
        return self._link_log

    @property
    def automatic(self) -> bool:
        """Whether its proposers are chosen for it."""
        return self._choice is SpeculationChoice.AUTO

    @property
    def adaptive(self) -> bool:
        """Whether the measured pace chooses the size of each block, up to `block_size`."""
        return self.automatic or self._request.block_size is None

    @property
    def block_size(self) -> int:
        """Tokens to draft at most; 0 for as many as one forward verifies.

        The plan's block size is a prediction; the pace measures.
        """
        return self._request.block_size or 0

    def attach(self, session: Session, run: Runner) -> None:
        """Says which session it is; `run` runs steps in its verifier's thread."""
        self._conditioning.attach(session, run)

    def prepare(self) -> None:
        """Begins to fetch what its proposer's vectors need."""
        self._conditioning.begin(self._takes_vectors())

    async def conditioned(self) -> bool:
        """Waits a bounded time until what the session computes gets its context vectors.

        Returns whether the planned proposer has what it needs.
        """
        taker = self._takes_vectors()
        if taker == self._plan.proposer:
            return await self._conditioning.ready(taker)
        self._conditioning.begin(taker)
        return True

    async def connect(self, history: History, *, sampled: bool = False) -> Roster | None:
        """The proposers of the next generation, None to decode alone.

        A remote stream begins to open here, so that it is there when the first
        draft is asked for. `sampled` says that its text is drawn at a temperature: less of that
        is guessed, and an automatic choice is made anew where the last generation's was not.
        """
        self._connections.begin_text(sampled=sampled)
        if self.automatic:
            is_other = sampled is not self._request.sampled
            self._request = replace(self._request, sampled=sampled)
            if is_other or self._needs_plan():
                self._replan(is_other=is_other)
        if not await self.conditioned():
            self._hindrance, self._roster = DropReason.FEATURES, None
            await self._connections.keep(frozenset())
            return None
        rivals = await self._rivals()
        if self._closed:
            # The session ended meanwhile: what is open now, nobody else would close.
            await self._connections.keep(frozenset())
            return None
        planned = self._plan.proposer
        if planned is not None and (not rivals or rivals[0].key != key_of(planned)):
            self._hindrance, self._roster = DropReason.UNREACHABLE, None
            return None
        self._hindrance = None
        self._take(rivals, len(history), leads=planned is not None)
        self._open_current(history)
        return self._roster

    def rest(self) -> None:
        """Frees what remote proposers keep for this session while it is idle."""
        self._connections.rest()

    async def close(self) -> None:
        """Closes the sources, for good."""
        self._closed = True
        self._conditioning.close()
        await self._connections.keep(frozenset())

    async def _rivals(self) -> list[Rival]:
        """The planned proposer, the trials, the stand-in: those whose nodes have an address."""
        plan = self._plan
        hopes = list(plan.trials)
        if plan.proposer is not None:
            hopes.insert(0, Trial(plan.proposer, plan.predicted_tokens_per_second_high))
        if plan.stand_in is not None:
            hopes.append(plan.stand_in)
        rivals = []
        for hoped in hopes:
            connection = await self._connections.get(hoped.proposer, plan.verifier)
            if connection is not None:
                speed = hoped.predicted_tokens_per_second_high
                rivals.append(
                    Rival(
                        key_of(hoped.proposer),
                        connection.source,
                        connection.state,
                        speed / plan.predicted_alone_tokens_per_second,
                        stands_in=hoped is plan.stand_in,
                        apart=self._connections.is_apart(hoped.proposer),
                    )
                )
        await self._connections.keep(frozenset(rival.key for rival in rivals))
        return rivals

    def _take(self, rivals: list[Rival], history_tokens: int, *, leads: bool) -> None:
        """Goes on with the roster that there is, over the sources of now, if it has the same."""
        roster = self._roster
        if roster is None or [each.key for each in roster.rivals] != [each.key for each in rivals]:
            plan = self._plan
            gain = plan.predicted_tokens_per_second / plan.predicted_alone_tokens_per_second
            self._roster = None
            if rivals:
                self._roster = Roster(
                    rivals,
                    leads=leads,
                    book=self._book(history_tokens),
                    gain=gain,
                    history_tokens=history_tokens,
                )
            return
        for known, rival in zip(roster.rivals, rivals, strict=True):
            known.source, known.state = rival.source, rival.state

    def _book(self, history_tokens: int) -> TrialBook | None:
        """What trials came to in other sessions; None where nobody is tried."""
        if not self.automatic:
            return None
        books = self._context.trial_books
        return books.of(
            self._plan.verifier.model_id,
            sampled=self._request.sampled,
            history_tokens=history_tokens,
        )

    def _open_current(self, history: History) -> None:
        roster = self._roster
        # One that rests would read a history that it may never draft behind.
        rival = None if roster is None or roster.is_resting else roster.drafting
        if rival is not None and rival.state.breaker.closed:
            rival.source.open(history)

    def _planned(self, inherited: Plan | None) -> Plan:
        try:
            return self._context.planner.plan_here(self._request)
        except NoPlacement:
            if inherited is None:
                raise
        except ModelNotFound as error:
            if inherited is None:
                # The verifier is here: what nobody serves is the named proposer.
                raise NoPlacement(
                    f"the proposer {self._request.proposer_model!r} cannot draft here: {error}",
                    proposer_model=self._request.proposer_model,
                    proposer_node_id=self._request.proposer_node_id,
                ) from error
        # The fork tries for itself.
        return replace(inherited, exploring=False)

    def _needs_plan(self) -> bool:
        """Whether nobody drafts: none was planned or is tried, or the one that did is dropped."""
        roster = self._roster
        return roster is None or roster.drafting is None or roster.drop_reason is not None

    def _replan(self, *, is_other: bool = False) -> None:
        """Takes another plan when it has another proposer; a dropped one may come back.

        One that the session has measured already is not taken for what is predicted of it, but
        for a text of the other kind.
        """
        try:
            plan = self._context.planner.plan_here(self._request)
        except FleetError:
            # The verifier is here and runs: the old plan stands.
            return
        roster = self._roster
        known = {rival.key for rival in roster.rivals} if roster is not None else set()
        if is_other:
            is_news = True
        elif plan.proposer is None:
            is_news = self._plan.proposer is None and any(
                key_of(trial.proposer) not in known for trial in plan.trials
            )
        elif self.drop_reason is DropReason.SLOWER_THAN_ALONE:
            is_news = key_of(plan.proposer) not in known
        else:
            is_news = plan.proposer != self._plan.proposer
        if is_news:
            self._plan, self._roster, self._told = plan, None, None

    def _takes_vectors(self) -> Placement | None:
        """Whose context vectors the session makes; the planned proposer when nobody takes any."""
        planned = self._plan.proposer
        for placement in (planned, *(trial.proposer for trial in self._plan.trials)):
            if self._conditioning.takes_vectors(placement):
                return placement
        return planned

    def _told_of(self, roster: Roster, key: ProposerKey) -> Plan:
        """The plan with the one that drafts now, which is not as it was planned."""
        planned = self._plan
        request = replace(self._request, proposer_node_id=key[0], proposer_model=key[1])
        try:
            named = self._context.planner.plan_here(request)
        except FleetError:
            # It has left meanwhile; the session's next block notices.
            return planned
        if named.proposer is None:
            return planned
        name = f"{named.proposer.model_id} on {named.proposer.node_name}"
        stand_in = planned.stand_in
        if stand_in is not None and key_of(stand_in.proposer) == key:
            reason = f"{name} stands in for what was planned, which does not draft now."
        elif roster.is_trying:
            reason = f"{name} is on trial on this stream, for a bounded number of tokens."
        else:
            reason = f"{name} was measured to be faster on this stream than what was planned."
        return replace(
            named,
            reasons=(reason, *planned.reasons),
            rejections=tuple(
                each
                for each in planned.rejections
                if each.proposer is None or key_of(each.proposer) != key
            ),
            exact=planned.exact,
            archive=planned.archive,
            archives=planned.archives,
            exploring=roster.is_trying,
            trials=planned.trials,
        )

"""Client of Kakeya Fleet: long token sessions on a fleet of local machines.

`Client` and `AsyncClient` are the two ways in; `kakeya.text` (extra
`kakeya[text]`) turns text into token ids and back.


Each name is loaded from its module when it is first asked for: a node's agent, which needs the
errors alone, starts without the client.
"""

import importlib
import typing

from kakeya import errors
from kakeya.errors import *  # noqa: F403 - each of its classes, by its __all__

if typing.TYPE_CHECKING:
    from kakeya.answer import AsyncAnswer
    from kakeya.chat import AsyncChat
    from kakeya.client import AsyncClient
    from kakeya.conversation import Message
    from kakeya.credentials import Owner, Tls
    from kakeya.fleet_view import AsyncFleet
    from kakeya.generated.values import (
        ArchiveOffer,
        ArchiveRange,
        BlockTiming,
        Card,
        DraftFault,
        DropReason,
        EndedSession,
        EventSeverity,
        GenerationDone,
        InvariantCount,
        KvQuality,
        KvStrategy,
        LimitUnit,
        LimitUse,
        LinkChange,
        LinkPurpose,
        Liveness,
        LoadedModel,
        LoadPhase,
        LoadProgress,
        MeasuredAcceptance,
        MeasuredCodec,
        ModelKind,
        ModelOffer,
        Node,
        NodeEvent,
        NodeHistory,
        NodeLoad,
        NodeSample,
        NodeSpans,
        PeerLink,
        Placement,
        Plan,
        ProposerStatistics,
        PulledModel,
        PullPhase,
        PullProgress,
        PullSource,
        Rejection,
        RejectionReason,
        RemovedModel,
        RestorerInfo,
        RestorerKind,
        Role,
        SeedFault,
        SessionActivity,
        SessionInfo,
        SessionOutcome,
        SessionsSnapshot,
        SessionState,
        Span,
        SpanAttribute,
        SpeculationStatistics,
        StepCost,
        StopReason,
        StoredModel,
        TensorLink,
        TextVector,
        Timings,
        Transfer,
        TransferKind,
        TransferState,
        Transport,
        Trial,
        UnloadedModel,
    )
    from kakeya.generation import AsyncGeneration
    from kakeya.model_load import AsyncModelLoad
    from kakeya.model_pull import AsyncModelPull
    from kakeya.options import (
        ChatOptions,
        GenerateOptions,
        PlanOptions,
        SessionOptions,
        SpeculationChoice,
    )
    from kakeya.session import AsyncSession
    from kakeya.sync import (
        Answer,
        Chat,
        Client,
        Fleet,
        Generation,
        ModelLoad,
        ModelPull,
        Session,
        Watch,
    )
    from kakeya.timeouts import Timeouts
    from kakeya.values import Alternative, Completion, Resumption, Speculation, Tokens
    from kakeya.watch_values import (
        FleetEvent,
        FleetSnapshot,
        NodeActivity,
        NodeChanged,
        NodeRemoved,
        NodeStatus,
        SessionsEvent,
    )
    from kakeya.watches import AsyncWatch

__all__ = [
    "Alternative",
    "Answer",
    "ArchiveOffer",
    "ArchiveRange",
    "AsyncAnswer",
    "AsyncChat",
    "AsyncClient",
    "AsyncFleet",
    "AsyncGeneration",
    "AsyncModelLoad",
    "AsyncModelPull",
    "AsyncSession",
    "AsyncWatch",
    "BlockTiming",
    "Card",
    "Chat",
    "ChatOptions",
    "Client",
    "Completion",
    "DraftFault",
    "DropReason",
    "EndedSession",
    "EventSeverity",
    "Fleet",
    "FleetEvent",
    "FleetSnapshot",
    "GenerateOptions",
    "Generation",
    "GenerationDone",
    "InvariantCount",
    "KvQuality",
    "KvStrategy",
    "LimitUnit",
    "LimitUse",
    "LinkChange",
    "LinkPurpose",
    "Liveness",
    "LoadPhase",
    "LoadProgress",
    "LoadedModel",
    "MeasuredAcceptance",
    "MeasuredCodec",
    "Message",
    "ModelKind",
    "ModelLoad",
    "ModelOffer",
    "ModelPull",
    "Node",
    "NodeActivity",
    "NodeChanged",
    "NodeEvent",
    "NodeHistory",
    "NodeLoad",
    "NodeRemoved",
    "NodeSample",
    "NodeSpans",
    "NodeStatus",
    "Owner",
    "PeerLink",
    "Placement",
    "Plan",
    "PlanOptions",
    "ProposerStatistics",
    "PullPhase",
    "PullProgress",
    "PullSource",
    "PulledModel",
    "Rejection",
    "RejectionReason",
    "RemovedModel",
    "RestorerInfo",
    "RestorerKind",
    "Resumption",
    "Role",
    "SeedFault",
    "Session",
    "SessionActivity",
    "SessionInfo",
    "SessionOptions",
    "SessionOutcome",
    "SessionState",
    "SessionsEvent",
    "SessionsSnapshot",
    "Span",
    "SpanAttribute",
    "Speculation",
    "SpeculationChoice",
    "SpeculationStatistics",
    "StepCost",
    "StopReason",
    "StoredModel",
    "TensorLink",
    "TextVector",
    "Timeouts",
    "Timings",
    "Tls",
    "Tokens",
    "Transfer",
    "TransferKind",
    "TransferState",
    "Transport",
    "Trial",
    "UnloadedModel",
    "Watch",
]
__all__ += errors.__all__
__all__.sort()

_VALUES = "kakeya.generated.values"
_HOMES = {
    "AsyncAnswer": "kakeya.answer",
    "AsyncChat": "kakeya.chat",
    "AsyncClient": "kakeya.client",
    "Message": "kakeya.conversation",
    "Owner": "kakeya.credentials",
    "Tls": "kakeya.credentials",
    "AsyncFleet": "kakeya.fleet_view",
    "AsyncGeneration": "kakeya.generation",
    "AsyncModelLoad": "kakeya.model_load",
    "AsyncModelPull": "kakeya.model_pull",
    "ChatOptions": "kakeya.options",
    "GenerateOptions": "kakeya.options",
    "PlanOptions": "kakeya.options",
    "SessionOptions": "kakeya.options",
    "SpeculationChoice": "kakeya.options",
    "AsyncSession": "kakeya.session",
    "Answer": "kakeya.sync",
    "Chat": "kakeya.sync",
    "Client": "kakeya.sync",
    "Fleet": "kakeya.sync",
    "Generation": "kakeya.sync",
    "ModelLoad": "kakeya.sync",
    "ModelPull": "kakeya.sync",
    "Session": "kakeya.sync",
    "Watch": "kakeya.sync",
    "Timeouts": "kakeya.timeouts",
    "Alternative": "kakeya.values",
    "Completion": "kakeya.values",
    "Resumption": "kakeya.values",
    "Speculation": "kakeya.values",
    "Tokens": "kakeya.values",
    "FleetEvent": "kakeya.watch_values",
    "FleetSnapshot": "kakeya.watch_values",
    "NodeActivity": "kakeya.watch_values",
    "NodeChanged": "kakeya.watch_values",
    "NodeRemoved": "kakeya.watch_values",
    "NodeStatus": "kakeya.watch_values",
    "SessionsEvent": "kakeya.watch_values",
    "AsyncWatch": "kakeya.watches",
}
"""Where the names are that are neither errors nor values of the contract."""


if not typing.TYPE_CHECKING:
    # Checkers are told by the imports above, and take no other name.
    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(importlib.import_module(_HOMES.get(name, _VALUES)), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from collections.abc import Callable
from typing import Never

import pytest

import kakeya
from kakeya import Client, Session, Timeouts
from kakeya.v1 import capability_pb2, model_pb2, model_service_pb2, runtime_pb2
from tests.support.scripted_node import ScriptedNode

ENDLESS = 1_000_000


def client_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kakeya-client"]


def test_a_session_from_end_to_end(
    threaded_node: ScriptedNode, token_at: Callable[[int], int]
) -> None:
    node = threaded_node
    with Client(node.address) as client:
        with client.create_session("tiny") as session:
            assert session.append([1, 2]) == 2
            generation = session.generate(6)
            blocks = list(generation)
            assert [tokens.first_index for tokens in blocks] == [2, 6]
            assert generation.done is not None
            assert generation.done.history_length == 8
            assert list(session.generate(2).ids()) == [token_at(8), token_at(9)]
            assert session.generate(1).collect().token_ids == (token_at(10),)
            shaped = session.generate(
                1,
                min_p=0.5,
                repetition_penalty=2.0,
                logit_bias={3: 1.0},
                stop_token_ids=[6],
                top_log_probabilities=1,
            )
            assert len(shaped.collect().alternatives) == 1
            request = node.requests["Generate"][-1]
            assert (request.min_p, request.repetition_penalty) == (0.5, 2.0)
            assert (dict(request.logit_bias), list(request.stop_token_ids)) == ({3: 1.0}, [6])
            assert session.history_length == 12
            fork = session.fork(2)
            fork.rewind(1)
            assert fork.history == (1,)
            assert fork.info().history_length == 1
            assert [info.session_id for info in client.sessions(page_size=1)] == [
                session.session_id,
                fork.session_id,
            ]
            fork.close()
            with pytest.raises(kakeya.SessionNotFound):
                fork.close()
        assert not node.sessions
    assert not client_threads()


def test_the_fleet(threaded_node: ScriptedNode) -> None:
    node = threaded_node
    node.fleet_events = [
        capability_pb2.WatchFleetResponse(snapshot=capability_pb2.FleetSnapshot(fleet_name="home")),
        capability_pb2.WatchFleetResponse(removed_node_id="bb"),
    ]
    with Client(node.address) as client:
        assert client.fleet.snapshot().fleet_name == "home"
        assert client.fleet.nodes() == ()
        assert client.fleet.node().card.name == "mini-1"
        assert client.fleet.plan("tiny").block_size == 4
        with client.fleet.watch() as watch:
            events = iter(watch)
            assert isinstance(next(events), kakeya.FleetSnapshot)
            assert next(events) == kakeya.NodeRemoved("bb")
        assert client.fleet.leave(1) == "aa"
        assert all(stream.cancelled.wait(10) for stream in node.streams)


def test_a_model_is_loaded_and_unloaded(threaded_node: ScriptedNode) -> None:
    wire = model_service_pb2
    offer = model_pb2.ModelOffer(model_id="small", role=model_pb2.ROLE_VERIFIER)
    threaded_node.load_events = [
        wire.LoadModelResponse(progress=wire.LoadProgress(phase=wire.LOAD_PHASE_CHECKING)),
        wire.LoadModelResponse(loaded=wire.LoadedModel(offer=offer)),
    ]
    threaded_node.unloaded = wire.UnloadModelResponse(model_id="small", memory_free_bytes=7)
    with Client(threaded_node.address) as client:
        load = client.fleet.load_model("small", role=kakeya.Role.VERIFIER, weights="int8")
        assert load.loaded is None
        assert [each.phase for each in load] == [kakeya.LoadPhase.CHECKING]
        assert load.loaded is not None
        assert client.fleet.load_model("small").wait() == load.loaded
        with client.fleet.load_model("small") as left:
            next(iter(left))
        assert left.loaded is None
        assert client.fleet.unload_model("small", drain_seconds=0).memory_free_bytes == 7
    assert threaded_node.requests["LoadModel"][0].weights == "int8"


def leave_by_break(session: Session) -> None:
    for _ in session.generate(ENDLESS):
        break


def leave_by_break_of_ids(session: Session) -> None:
    for _ in session.generate(ENDLESS).ids():
        break


def leave_by_exception(session: Session) -> None:
    with pytest.raises(ZeroDivisionError):
        for _ in session.generate(ENDLESS):
            raise ZeroDivisionError


def leave_by_context_manager(session: Session) -> None:
    with session.generate(ENDLESS) as generation:
        blocks = iter(generation)
        next(blocks)
    assert list(blocks) == []


def leave_by_close(session: Session) -> None:
    generation = session.generate(ENDLESS)
    blocks = iter(generation)
    next(blocks)
    generation.close()
    generation.close()
    assert next(blocks, None) is None


def leave_by_garbage(session: Session) -> None:
    blocks = iter(session.generate(ENDLESS))
    next(blocks)
    cycle: list[object] = [blocks]
    cycle.append(cycle)
    del blocks, cycle
    gc.collect()


LEAVINGS = [value for name, value in list(globals().items()) if name.startswith("leave_by")]


@pytest.mark.parametrize("leave", LEAVINGS, ids=lambda leave: leave.__name__)
def test_leaving_stops_the_node_and_the_session_lives(
    threaded_node: ScriptedNode, leave: Callable[[Session], None]
) -> None:
    with Client(threaded_node.address) as client, client.create_session("tiny") as session:
        session.append([1])
        leave(session)
        (stream,) = threaded_node.streams
        assert stream.cancelled.wait(10)
        assert stream.sent < ENDLESS
        held = session.history
        assert session.append([9]) == len(held) + 1
        assert threaded_node.sessions[session.session_id] == [*held, 9]
    assert not client_threads()


def test_an_interrupt_of_the_waiting_thread_cancels_the_call(
    threaded_node: ScriptedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    threaded_node.silent_after = 0
    with Client(threaded_node.address) as client, client.create_session("tiny") as session:
        session.append([1])
        blocks = iter(session.generate(8))
        monkeypatch.setattr("concurrent.futures.Future.result", raise_interrupt_when(threaded_node))
        with pytest.raises(KeyboardInterrupt):
            next(blocks)
        monkeypatch.undo()
        assert threaded_node.streams[0].cancelled.wait(10)


def raise_interrupt_when(node: ScriptedNode) -> Callable[..., Never]:
    """Stands for Ctrl-C while the main thread waits: comes once the node works."""

    def result(future: object, timeout: float | None = None) -> Never:
        while not node.streams:
            pass
        raise KeyboardInterrupt

    return result


def test_closing_the_client_ends_its_streams_and_its_thread(threaded_node: ScriptedNode) -> None:
    client = Client(threaded_node.address)
    session = client.create_session("tiny")
    session.append([1])
    blocks = iter(session.generate(ENDLESS))
    next(blocks)
    client.close()
    client.close()
    assert threaded_node.streams[0].cancelled.wait(10)
    assert not client_threads()
    with pytest.raises(kakeya.ClientClosed):
        session.append([1])
    with pytest.raises(kakeya.ClientClosed):
        next(blocks)
    with session:
        pass


def test_closing_the_client_wakes_a_waiting_thread(threaded_node: ScriptedNode) -> None:
    threaded_node.silent_after = 0
    client = Client(threaded_node.address)
    session = client.create_session("tiny")
    session.append([1])
    caught = []

    def wait() -> None:
        try:
            session.generate(4).collect()
        except kakeya.KakeyaError as error:
            caught.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not threaded_node.streams:
        client.fleet.node()
    client.close()
    waiting.join(10)
    assert not waiting.is_alive()
    assert isinstance(caught[0], kakeya.ClientClosed)


def test_a_forgotten_client_ends_its_thread(threaded_node: ScriptedNode) -> None:
    client = Client(threaded_node.address)
    client.fleet.node()
    del client
    gc.collect()
    assert not client_threads()


def test_many_threads_share_a_client(threaded_node: ScriptedNode) -> None:
    with Client(threaded_node.address) as client:
        lengths = []

        def work() -> None:
            with client.create_session("tiny") as session:
                session.append([1, 2])
                lengths.append(session.generate(50).collect().done.history_length)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert lengths == [52] * 8


def test_errors_are_those_of_the_asynchronous_client(unused_tcp_port: int) -> None:
    with (
        Client(f"127.0.0.1:{unused_tcp_port}", timeouts=Timeouts(connect=2)) as client,
        pytest.raises(kakeya.NodeUnreachable),
    ):
        client.create_session("tiny")


PAIRS = [
    (kakeya.AsyncClient, kakeya.Client, set()),
    (kakeya.AsyncSession, kakeya.Session, set()),
    (kakeya.AsyncGeneration, kakeya.Generation, {"aclose"}),
    (kakeya.AsyncWatch, kakeya.Watch, {"aclose"}),
    (kakeya.AsyncFleet, kakeya.Fleet, set()),
]


@pytest.mark.parametrize(("asynchronous", "synchronous", "renamed"), PAIRS)
def test_both_surfaces_offer_the_same(
    asynchronous: type, synchronous: type, renamed: dict[str, str | None]
) -> None:
    def surface(kind: type) -> dict[str, Callable[..., object] | property]:
        return {
            name: value
            for name, value in inspect.getmembers(kind)
            if not name.startswith("_") and (callable(value) or isinstance(value, property))
        }

    theirs, ours = surface(asynchronous), surface(synchronous)
    assert {name for name in theirs if name not in renamed} == set(ours) - (
        {"close"} if renamed else set()
    )
    for name in set(theirs) & set(ours):
        their, our = theirs[name], ours[name]
        if isinstance(their, property):
            assert isinstance(our, property)
            continue
        assert not isinstance(our, property)
        assert inspect.signature(our).parameters == inspect.signature(their).parameters, name
        assert not asyncio.iscoroutinefunction(our)
    constructors = inspect.signature(asynchronous), inspect.signature(synchronous)
    if asynchronous is kakeya.AsyncClient:
        assert constructors[0].parameters == constructors[1].parameters


def test_watches_of_a_node_and_of_its_sessions(threaded_node: ScriptedNode) -> None:
    sample = capability_pb2.NodeSample(tokens_per_second=2.5)
    threaded_node.node_events = [capability_pb2.WatchNodeResponse(sample=sample)]
    ended = runtime_pb2.EndedSession(
        session_id="s9", outcome=runtime_pb2.SESSION_OUTCOME_GROUP_LOST
    )
    threaded_node.session_events = [runtime_pb2.WatchSessionsResponse(ended=ended)]
    with Client(threaded_node.address) as client:
        seen = next(iter(client.fleet.watch_node(history_seconds=2.0)))
        assert isinstance(seen, kakeya.NodeSample)
        assert seen.tokens_per_second == 2.5
        for event in client.watch_sessions(block_count=3):
            assert event == kakeya.EndedSession("s9", kakeya.SessionOutcome.GROUP_LOST)
            break
        assert threaded_node.requests["WatchNode"][0].history_seconds == 2.0
        assert threaded_node.requests["WatchSessions"][0].block_count == 3
        with pytest.raises(kakeya.BadRequest):
            client.watch_sessions(block_count=-1)
    for stream in threaded_node.streams:
        assert stream.cancelled.wait(10)

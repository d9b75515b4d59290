"""What a node knows of codecs: its quotes, its changes, and what it keeps and forgets."""

from __future__ import annotations

from pathlib import Path

from kakeya_fleet.fleet.placement.codec_ladder import PackedQuality
from kakeya_fleet.node.config.state_directory import CODECS_FILE
from kakeya_fleet.node.planning.codec_ledger import CodecLedger
from kakeya_fleet.node.planning.codec_store import MOST_MODELS, CodecStore, ModelKey

HIGH, ECONOMY = PackedQuality.HIGH, PackedQuality.ECONOMY
MODEL = ModelKey("ab" * 32, "torch bfloat16")
WIDER = ModelKey("ab" * 32, "torch float32")
OTHER = ModelKey("cd" * 32, "torch bfloat16")


class Unix:
    """Seconds since 1970, one more at each look."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def ledger_of(folder: Path | None = None) -> CodecLedger:
    store = None if folder is None else CodecStore(folder / CODECS_FILE, lambda _: None)
    return CodecLedger(store, Unix())


async def test_a_quality_goes_as_far_as_others_have_measured() -> None:
    ledger = ledger_of()
    # Codecs that are too far for both, measured by sessions of high alone.
    for codec in ("kvarn4v3", "kvarn4", "int8"):
        changes = await ledger.record(MODEL, codec, [0.5] * 96)
    assert ledger.standing(MODEL, HIGH).codec == "int8"
    changes = await ledger.record(MODEL, "kvarn3", [0.5] * 16)
    assert [(each.quality, each.before, each.after) for each in changes] == [
        (ECONOMY, "kvarn3", "kvarn4v3"),
        (ECONOMY, "kvarn4v3", "kvarn4"),
        (ECONOMY, "kvarn4", "int8"),
    ]
    assert all(each.reasons for each in changes)
    assert not ledger.decision(MODEL, ECONOMY).moved


async def test_models_and_how_they_are_computed_are_apart() -> None:
    ledger = ledger_of()
    await ledger.record(MODEL, "kvarn4", [0.5] * 16)
    assert ledger.packing(MODEL, HIGH).codec == "int8"
    for other in (WIDER, OTHER):
        assert ledger.packing(other, HIGH).codec == "kvarn4"
        assert ledger.divergence(other, "kvarn4").count == 0
    assert ledger.packing(MODEL, HIGH, "kvarn4").codec == "kvarn4"
    # Of a model however it is computed.
    await ledger.record(WIDER, "kvarn4", [0.5] * 16)
    assert await ledger.reset(MODEL.weights_digest) == 2
    assert ledger.packing(MODEL, HIGH).codec == "kvarn4"


async def test_all_of_it_is_there_after_a_restart(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    await ledger.record(MODEL, "kvarn4", [0.5] * 16)
    await ledger.record(MODEL, "int8", [0.001, 0.002])
    again = ledger_of(tmp_path)
    assert again.rungs(MODEL) == ledger.rungs(MODEL)
    assert again.standing(MODEL, HIGH) == ledger.standing(MODEL, HIGH)
    assert again.wanted(MODEL, HIGH) == ("int8",)
    await again.reset()
    assert ledger_of(tmp_path).rungs(MODEL) == ledger_of().rungs(MODEL)


async def test_rungs_say_what_has_them_and_why() -> None:
    ledger = ledger_of()
    await ledger.record(MODEL, "kvarn4", [0.002] * 16)
    first, second, _, fourth, *_ = ledger.rungs(MODEL)
    assert (first.codec, first.qualities, first.reasons, first.measured_at) == ("int8", (), (), 0.0)
    assert (second.codec, second.qualities, second.measured_at) == ("kvarn4", (HIGH,), 1001.0)
    assert second.reasons[0].startswith("high: kvarn4 was measured on 16 positions: 0.0020 nats")
    assert fourth.qualities == (ECONOMY,)


async def test_it_knows_no_more_models_than_are_kept() -> None:
    ledger = ledger_of()
    models = [ModelKey(f"{number:064x}", "torch bfloat16") for number in range(MOST_MODELS + 2)]
    for model in models:
        await ledger.record(model, "kvarn4", [0.5] * 16)
    for model in models[:2]:
        assert ledger.divergence(model, "kvarn4").count == 0
        assert ledger.standing(model, HIGH).codec == "kvarn4"
    assert ledger.divergence(models[2], "kvarn4").count == 16

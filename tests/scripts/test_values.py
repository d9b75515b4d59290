import pytest

from scripts.write import descriptors
from scripts.write.descriptors import Commented
from scripts.write.values import model, prose, python, typescript
from scripts.write.values.shapes import SHAPES, Shape


@pytest.fixture(scope="module")
def files() -> list[Commented]:
    return descriptors.commented(descriptors.compiled())


@pytest.fixture(scope="module")
def contract(files: list[Commented]) -> model.Contract:
    return model.contract(files)


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        (Shape(none=("seconds",)), "does not say when there is none"),
        (Shape(none=("second",)), "StepCost has no second"),
        (Shape(after={"seconds": "tokens"}, defaults_from="end"), "StepCost has no end"),
    ],
)
def test_a_shape_that_does_not_fit_its_message_is_refused(
    files: list[Commented], monkeypatch: pytest.MonkeyPatch, shape: Shape, complaint: str
) -> None:
    monkeypatch.setitem(SHAPES, "StepCost", shape)
    with pytest.raises(ValueError, match=complaint):
        model.contract(files)


def test_fields_stand_where_and_as_their_shape_says(contract: model.Contract) -> None:
    values = {each.name: each for each in contract.values}
    info = values["RestorerInfo"].fields
    assert [each.name for each in info][:4] == ["kind", "model_id", "digest", "node_id"]
    assert info[3].path == ("restorer", "node_id")
    rebuilt = next(each for each in values["GenerationDone"].fields if each.name == "seed")
    assert (rebuilt.wide, rebuilt.big, rebuilt.has_default) == (True, True, False)
    assert "loading" not in {each.name for each in values["Card"].fields}
    links = values["PeerLink"].fields
    wait = next(each for each in links if each.name == "archive_wait_seconds")
    assert wait.none
    assert "None before there were enough" in wait.doc


def test_comments_speak_the_sdks_names(contract: model.Contract) -> None:
    text = "With RESTORER_KIND_PROJECTION: see node_id of GenerateDone; KV_MEMORY stays."
    assert prose.spoken(text, contract, str) == (
        'With "projection": see `node_id` of GenerationDone; KV_MEMORY stays.'
    )
    assert "`nodeId`" in prose.spoken(text, contract, lambda _: "nodeId")


def test_both_languages_make_a_value_of_an_inner_message(contract: model.Contract) -> None:
    assert "accelerator_kind=message.accelerator.kind," in python.wire(contract)
    inner = "const { accelerator = create(capabilityPb.AcceleratorSchema) } = message;"
    assert inner in typescript.wire(contract)
    assert "acceleratorKind: accelerator.kind," in typescript.wire(contract)

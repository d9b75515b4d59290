import json
from pathlib import Path
from typing import Any

import pytest

from tests.monitoring.conftest import Expression, Family, FindMistakes, ParseExpression

FILE = Path(__file__).parents[2] / "monitoring" / "grafana.json"
ROWS = ["Fleet", "Sessions", "Speculation", "Links", "Archives", "Errors and HTTP"]
# Metrics that are on no panel, each with its reason.
LEFT_OUT: dict[str, str] = {}


@pytest.fixture(scope="module")
def board() -> dict[str, Any]:
    board: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return board


@pytest.fixture(scope="module")
def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


@pytest.fixture(scope="module")
def expressions(panels: list[dict[str, Any]], expression: ParseExpression) -> list[Expression]:
    return [expression(target["expr"]) for panel in panels for target in panel["targets"]]


def test_every_metric_and_label_of_the_dashboard_exists(
    expressions: list[Expression], mistakes: FindMistakes
) -> None:
    wrong = {each.text: mistakes(each) for each in expressions if mistakes(each)}
    assert not wrong
    assert all(each.metrics for each in expressions)


def test_a_name_that_no_node_has_would_be_found(
    expression: ParseExpression, mistakes: FindMistakes
) -> None:
    assert mistakes(expression("rate(kakeya_tokens_generated[5m])")) == ["kakeya_tokens_generated"]
    assert mistakes(expression("sum by (kind) (kakeya_kv_bytes)")) == ["kind"]
    assert mistakes(expression('kakeya_members{alive="yes"}')) == ["alive"]


def test_every_metric_is_on_a_panel_or_left_out_for_a_reason(
    expressions: list[Expression], families: list[Family]
) -> None:
    shown = frozenset[str]().union(*(each.metrics for each in expressions))
    missing = {family.name for family in families if not family.samples & shown}
    assert missing == set(LEFT_OUT)


def test_panels_say_what_they_show_and_in_which_unit(panels: list[dict[str, Any]]) -> None:
    assert len(panels) >= 16
    for panel in panels:
        assert panel["title"], panel
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for target in panel["targets"]:
            assert target["legendFormat"], panel["title"]


def test_rows_in_order_and_no_panel_over_another(board: dict[str, Any]) -> None:
    rows = [panel["title"] for panel in board["panels"] if panel["type"] == "row"]
    assert rows == ROWS
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_it_takes_any_prometheus(board: dict[str, Any], panels: list[dict[str, Any]]) -> None:
    variables = {each["name"]: each for each in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert [each["name"] for each in board["__inputs"]] == ["DS_PROMETHEUS"]
    for panel in panels:
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert {source["uid"] for source in sources} == {"${datasource}"}, panel["title"]
        for target in panel["targets"]:
            assert target["expr"].count('node=~"$node"') == target["expr"].count("{"), target


def test_the_file_is_what_its_script_writes(written_dashboard: str) -> None:
    assert FILE.read_text("utf-8") == written_dashboard, (
        "run python -m scripts.write.grafana_dashboard"
    )

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring.conftest import Family, FindMistakes, ParseExpression

FOLDER = Path(__file__).parents[2] / "monitoring"
DOCS = FOLDER.parent


@pytest.fixture(scope="module")
def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def test_every_metric_and_label_of_the_alerts_exists(
    rules: list[dict[str, Any]], expression: ParseExpression, mistakes: FindMistakes
) -> None:
    wrong = {
        rule["alert"]: found for rule in rules if (found := mistakes(expression(rule["expr"])))
    }
    assert not wrong


def test_alerts_say_what_is_wrong_how_bad_and_what_mends_it(rules: list[dict[str, Any]]) -> None:
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 10
    for rule in rules:
        assert rule["alert"].startswith("Kakeya")
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["mend"].endswith("."), rule["alert"]


def test_alerts_point_to_pages_and_headings_that_exist(rules: list[dict[str, Any]]) -> None:
    for rule in rules:
        for word in rule["annotations"]["mend"].replace(")", " ").replace("(", " ").split():
            if not word.startswith("docs/"):
                continue
            page, _, heading = word.rstrip(".").partition("#")
            text = (DOCS / page).read_text("utf-8")
            if heading:
                assert f"### {heading.upper()}\n" in text, (rule["alert"], word)


def test_prometheus_finds_nodes_by_http(families: list[Family]) -> None:
    settings = yaml.safe_load((FOLDER / "prometheus.yml").read_text("utf-8"))
    [job] = settings["scrape_configs"]
    [discovery] = job["http_sd_configs"]
    assert discovery["url"].endswith("/sd/prometheus")
    for file in settings["rule_files"]:
        assert (FOLDER / file).exists()

"""Writes monitoring/grafana.json, the dashboard to import into Grafana.

python -m scripts.write.grafana_dashboard
python -m scripts.write.grafana_dashboard --check     # exit status 1 when the file is another
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from scripts.write.grafana import ROWS, Panel, Query

FILE = Path(__file__).parents[2] / "monitoring" / "grafana.json"
SELECTION = '{fleet=~"$fleet", node=~"$node"}'
LOOK_BACK = "$__rate_interval"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Grafana's grid is 24 wide; three charts beside each other, or six figures.
WIDTHS = {"timeseries": 8, "stat": 4}
HEIGHTS = {"timeseries": 8, "stat": 4}


def dashboard() -> dict[str, Any]:
    """The whole dashboard, as Grafana imports it."""
    return {
        "__inputs": [
            {
                "name": "DS_PROMETHEUS",
                "label": "Prometheus",
                "type": "datasource",
                "pluginId": "prometheus",
                "pluginName": "Prometheus",
            }
        ],
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"},
            {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
        ],
        "uid": "kakeya-fleet",
        "title": "Kakeya Fleet",
        "description": "Sessions, speculation, links and archives of a fleet.",
        "tags": ["kakeya"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "schemaVersion": 39,
        "version": 1,
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_source(), _choice("fleet", ""), _choice("node", "$fleet")]},
        "annotations": {"list": []},
        "panels": _panels(),
    }


def _source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "${DS_PROMETHEUS}", "value": "${DS_PROMETHEUS}"},
        "hide": 0,
    }


def _choice(label: str, within: str) -> dict[str, Any]:
    selection = f'{{fleet=~"{within}"}}' if within else ""
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": f"label_values(kakeya_members{selection}, {label})",
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> list[dict[str, Any]]:
    """All panels in reading order, each row's below its heading."""
    made: list[dict[str, Any]] = []
    left = top = height = 0
    for row in ROWS:
        top, left = top + height, 0
        made.append(
            {
                "id": len(made) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": 24, "h": 1},
                "panels": [],
            }
        )
        top, height = top + 1, 0
        for panel in row.panels:
            width = WIDTHS[panel.kind]
            if left + width > 24:
                top, left, height = top + height, 0, 0
            place = {"x": left, "y": top, "w": width, "h": HEIGHTS[panel.kind]}
            made.append(_panel(len(made) + 1, panel, place))
            left, height = left + width, max(height, HEIGHTS[panel.kind])
    return made


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "lineWidth": 1,
            "fillOpacity": 20 if panel.stacked else 0,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "showPoints": "never",
        }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel.kind),
        "targets": [_target(chr(ord("A") + i), query) for i, query in enumerate(panel.queries)],
    }


def _options(kind: str) -> dict[str, Any]:
    if kind == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "area",
        }
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _target(letter: str, query: Query) -> dict[str, Any]:
    expression = query.expression.replace("@", SELECTION).replace("$t]", f"{LOOK_BACK}]")
    return {
        "refId": letter,
        "datasource": SOURCE,
        "expr": expression,
        "legendFormat": query.legend,
        "range": True,
    }


def text() -> str:
    """The file's contents."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    """Writes or checks the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only compare")
    if parser.parse_args().check:
        same = FILE.exists() and FILE.read_text("utf-8") == text()
        if not same:
            print(f"{FILE} is not what this script writes: run it without --check")
        return 0 if same else 1
    FILE.write_text(text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Addresses in documents and help name one port a service, so that examples fit together."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NODE, HTTP, COLLECTOR, DASHBOARD = "7600", "7180", "4318", "7700"
PLACES = (
    "README.md",
    "docs/*.md",
    "sdks/*/README.md",
    "sdks/*/examples/**/*.*",
    "sdks/python/kakeya/*.py",
    "sdks/typescript/src/*.ts",
    "node/config/config.py",
    "node/cli/*.py",
)
ADDRESS = re.compile(r"\b(?:\d+\.\d+\.\d+\.\d+|localhost|[\w.-]+\.example):(\d{2,5})\b")


def test_addresses_name_the_ports_that_the_others_do() -> None:
    found: dict[str, set[str]] = {}
    for place in PLACES:
        for file in ROOT.glob(place):
            if file.is_file() and not {"dist", "__pycache__"} & set(file.parts):
                for port in ADDRESS.findall(file.read_text("utf-8")):
                    found.setdefault(port, set()).add(str(file.relative_to(ROOT)))
    assert NODE in found
    assert HTTP in found
    known = {NODE, HTTP, COLLECTOR, DASHBOARD}
    assert {port: files for port, files in found.items() if port not in known} == {}

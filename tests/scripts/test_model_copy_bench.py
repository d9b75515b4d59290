"""The benchmark of copies of models, in short: its ways, and what it says of them."""

import json
from pathlib import Path

from scripts.bench.model_copy import KILLED, ONE, RAW, TWO, main


def test_a_short_run_tells_of_every_way(tmp_path: Path) -> None:
    out = tmp_path / "copies.json"
    main(["--megabytes", "40", "--rounds", "1", "--networks", "loopback", "--out", str(out)])
    report = json.loads(out.read_text())
    found = report["networks"]["loopback"]
    assert {RAW, ONE, TWO, KILLED} <= set(found["ways"])
    assert found["ways"][RAW]["of_raw_tcp"] == 1.0
    assert all(each["seconds"]["count"] == 1 for each in found["ways"].values())
    assert set(found["processor_seconds_a_gigabyte"]) == {"target", "source-1"}
    assert all(each["killed_at_bytes"] >= 20e6 for each in found["deaths"])

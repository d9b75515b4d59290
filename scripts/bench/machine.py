"""What every benchmark's report says of the machine, and the arithmetic they share."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("torch", "transformers", "mlx", "mlx-lm")


def machine() -> dict[str, str | int | None]:
    """What the figures are measured on, and with which libraries."""
    # Seconds and much memory, which who only needs the arithmetic is spared.
    import torch  # noqa: PLC0415

    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = (line for line in info.read_text().splitlines() if line.startswith("model name"))
        model = next(lines, model).partition(":")[2].strip() or model
    return {
        "processor": model,
        "vector_extensions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: installed for name in LIBRARIES if (installed := _version(name)) is not None},
        "threads_a_process": torch.get_num_threads(),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def command(file: str) -> str:
    """The line that made the report; `file` is the script's `__file__`."""
    module = ".".join(Path(file).resolve().relative_to(ROOT).with_suffix("").parts)
    return " ".join(["python", "-m", module, *sys.argv[1:]])


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def step_summary(seconds: Sequence[float]) -> dict[str, float | int]:
    """Seconds a step: mean, p50, p95, p99, and the tokens a second of the median step."""
    middle = statistics.median(seconds)
    return {
        "tokens_per_second_median": 1.0 / middle,
        "step_seconds_mean": statistics.fmean(seconds),
        "step_seconds_p50": middle,
        "step_seconds_p95": percentile(seconds, 0.95),
        "step_seconds_p99": percentile(seconds, 0.99),
        "steps": len(seconds),
    }


def decile_ratio(series: Sequence[float]) -> float:
    """The median of the last tenth of `series` over that of the first; 1 is flat.

    Raises `ValueError` for an empty series.
    """
    if not series:
        raise ValueError("an empty series has no tenths")
    tenth = max(1, len(series) // 10)
    return statistics.median(series[-tenth:]) / statistics.median(series[:tenth])


def write_report(path: Path, report: Mapping[str, object]) -> None:
    """Writes `report` as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    draft.write_text(json.dumps(report, indent=2) + "\n")
    draft.replace(path)

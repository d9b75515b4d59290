"""Threads, memory, disks and descriptors: of the agent where one runs here, else of this shell."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from pathlib import Path

import psutil

from kakeya import Liveness, Role
from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.fleet.diagnosis import memory as memory_facts
from kakeya_fleet.fleet.diagnosis import open_files as file_facts
from kakeya_fleet.fleet.diagnosis import storage
from kakeya_fleet.fleet.diagnosis import threads as thread_facts
from kakeya_fleet.fleet.diagnosis.finding import Finding, not_run
from kakeya_fleet.node.cli.doctor.in_threads import in_thread
from kakeya_fleet.node.cli.doctor.site import Site
from kakeya_fleet.node.config.state_directory import default_state


async def threads(site: Site) -> list[Finding]:
    """Cores and OMP_NUM_THREADS here, and the threads of verifiers of the same weights."""
    process = site.process
    environment = dict(os.environ) if site.agent is None else process.environ()
    cores = _core_count(process)
    own = thread_facts.Threads(cores, environment.get("OMP_NUM_THREADS", ""))
    verifiers = [
        thread_facts.VerifierThreads(
            node.name,
            model.weights_digest,
            model.model_id,
            model.thread_count,
            model.arithmetic,
            f"{model.dtype} {model.backend} {model.quantization}",
        )
        for node in site.nodes
        if node.liveness is Liveness.ALIVE
        for model in node.models
        if model.role is Role.VERIFIER
    ]
    return [thread_facts.threads(own), *thread_facts.verifier_threads(verifiers)]


async def memory(site: Site) -> list[Finding]:
    """The machine's memory, and what the control groups of the agent leave of it."""
    machine = psutil.virtual_memory()
    proc = Path("/proc") / str(site.process.pid)
    limits = system_memory.memory_limits(proc)
    return [
        memory_facts.memory(
            memory_facts.Memory(
                machine_bytes=int(machine.total),
                total_bytes=min((int(machine.total), *(each.limit_bytes for each in limits))),
                available_bytes=min(
                    (int(machine.available), *(each.free_bytes for each in limits))
                ),
            )
        )
    ]


async def disk(site: Site) -> list[Finding]:
    """The state directory, and where models of the hub are kept."""
    state = site.agent.folder if site.agent is not None else None
    return storage.storage(await in_thread(lambda: _places(state or default_state("any").parent)))


async def open_files(site: Site) -> list[Finding]:
    """Descriptors of the agent; of this process, whose limits an agent would begin with."""
    if site.agent is None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        whose = "this command"
    elif sys.platform == "linux":
        soft, hard = resource.prlimit(site.agent.process_id, resource.RLIMIT_NOFILE)
        whose = site.agent.name
    else:
        cause = "This system does not tell the limits of another process; see `ulimit -n`."
        return [not_run(file_facts.CHECK, cause)]
    used = site.process.num_fds()
    return [file_facts.open_files(file_facts.OpenFiles(whose, used, soft, hard))]


def _core_count(process: psutil.Process) -> int:
    """Cores that the process may run on; those of the machine where the system does not tell."""
    if sys.platform == "linux":
        return len(process.cpu_affinity() or ()) or 1
    return os.cpu_count() or 1


def _places(state: Path) -> list[storage.Place]:
    from huggingface_hub import constants

    return [
        _place(storage.STATE, state),
        _place(storage.MODELS, Path(constants.HF_HUB_CACHE).expanduser()),
    ]


def _place(need: storage.Need, path: Path) -> storage.Place:
    """Of a directory that is not there yet, the nearest above it decides. Raises OSError."""
    found = path
    while not found.exists() and found != found.parent:
        found = found.parent
    usage = shutil.disk_usage(found)
    is_writable = os.access(found, os.W_OK | os.X_OK)
    return storage.Place(need, str(path), usage.free, usage.total, is_writable)

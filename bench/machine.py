"""What was measured on: machine, Python, packages, and the memory of this process."""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory and system; what cannot be found out is missing."""
    found: dict[str, Any] = {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
    }
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        found["processor"] = names[0] if names else platform.processor()
    if hasattr(os, "sysconf"):
        found["memory_gb"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    return found


def describe_python(packages: Iterable[str]) -> dict[str, Any]:
    """The interpreter, and those of the packages that are installed."""
    versions: dict[str, str] = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"python": f"{platform.python_implementation()} {platform.python_version()}", "packages": versions}


def load_average() -> float | None:
    """How busy the machine is: the load of the last minute."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def reset_peak() -> None:
    """Let the kernel's peak of this process begin anew, where it can (Linux)."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return


def peak_mb() -> float:
    """The peak of resident memory in MB; since :func:`reset_peak` on Linux, else since the process began."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    unit = 2**20 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit

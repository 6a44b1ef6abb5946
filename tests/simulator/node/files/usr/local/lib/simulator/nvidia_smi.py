"""Prints what nvidia-smi prints on a GB10 at rest: one GPU whose memory is the machine's and has no figures."""

from __future__ import annotations

import sys
import time

DRIVER, CUDA, BUS = "580.142", "13.0", "0000000F:01:00.0"
UUID = "GPU-00000000-0000-0000-0000-000000000001"
# Property of --query-gpu: value, unit.
PROPERTIES = {
    "index": ("0", ""),
    "count": ("1", ""),
    "name": ("NVIDIA GB10", ""),
    "gpu_name": ("NVIDIA GB10", ""),
    "uuid": (UUID, ""),
    "gpu_uuid": (UUID, ""),
    "pci.bus_id": (BUS, ""),
    "driver_version": (DRIVER, ""),
    "compute_cap": ("12.1", ""),
    "persistence_mode": ("Enabled", ""),
    "pstate": ("P8", ""),
    "temperature.gpu": ("36", ""),
    "power.draw": ("4.21", "W"),
    "utilization.gpu": ("0", "%"),
    "utilization.memory": ("0", "%"),
    "clocks.current.graphics": ("208", "MHz"),
    "clocks.current.sm": ("208", "MHz"),
    "clocks.max.graphics": ("3003", "MHz"),
    "clocks_throttle_reasons.active": ("0x0000000000000001", ""),
    "clocks_event_reasons.active": ("0x0000000000000001", ""),
}
NOT_AVAILABLE = "[N/A]"
KNOWN_EMPTY = (
    "memory.",
    "ecc.",
    "fan.",
    "power.",
    "mig.",
    "clocks.",
    "pcie.",
    "temperature.",
    "serial",
    "vbios",
)

TABLE = f"""\
{time.strftime("%a %b %e %H:%M:%S %Y"):<31}
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI {DRIVER:<22} Driver Version: {DRIVER:<14} CUDA Version: {CUDA:<9}|
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA GB10                    On  |   {BUS} Off |                  N/A |
| N/A   36C    P8              4W /  N/A  | Not Supported          |      0%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+"""

DETAILS = f"""
==============NVSMI LOG==============

Timestamp                                              : {time.strftime("%a %b %e %H:%M:%S %Y")}
Driver Version                                         : {DRIVER}
CUDA Version                                           : {CUDA}

Attached GPUs                                          : 1
GPU {BUS}
    Product Name                                       : NVIDIA GB10
    Product Architecture                               : Blackwell
    Persistence Mode                                   : Enabled
    Addressing Mode                                    : ATS
    GPU UUID                                           : {UUID}
    FB Memory Usage
        Total                                          : N/A
        Reserved                                       : N/A
        Used                                           : N/A
        Free                                           : N/A
"""

TOPOLOGY = """\
\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \t0-19\t0\t\tN/A
"""


def query_gpu(names: list[str], options: list[str]) -> int:
    """One row of comma-separated values; ``[N/A]`` keeps its brackets."""
    values, header = [], []
    for name in names:
        if name not in PROPERTIES and not name.startswith(KNOWN_EMPTY):
            print(f'Field "{name}" is not a valid field to query.\n')
            return 2
        value, unit = PROPERTIES.get(name, (NOT_AVAILABLE, ""))
        header.append(f"{name} [{unit}]" if unit else name)
        values.append(f"{value} {unit}" if unit and "nounits" not in options else value)
    if "noheader" not in options:
        print(", ".join(header))
    print(", ".join(values))
    return 0


def main(arguments: list[str]) -> int:
    settings = dict(argument.lstrip("-").partition("=")[::2] for argument in arguments)
    options = settings.get("format", "").split(",")
    if "query-gpu" in settings:
        return query_gpu(settings["query-gpu"].replace(" ", "").split(","), options)
    if "query-compute-apps" in settings:
        if "noheader" not in options:
            print(", ".join(settings["query-compute-apps"].split(",")))
    elif "-L" in arguments or "list-gpus" in settings:
        print(f"GPU 0: NVIDIA GB10 (UUID: {UUID})")
    elif "-q" in arguments or "query" in settings:
        print(DETAILS)
    elif arguments[:1] == ["topo"]:
        print(TOPOLOGY)
    elif "version" in settings:
        print(f"NVIDIA-SMI version  : {DRIVER}\nNVML version        : {DRIVER}\n"
              f"DRIVER version      : {DRIVER}\nCUDA Version        : {CUDA}")  # fmt: skip
    else:
        print(TABLE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

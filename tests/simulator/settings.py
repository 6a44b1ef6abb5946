"""What can be chosen about the simulated machines. Every setting is an environment variable."""

from __future__ import annotations

import ipaddress
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
DEFAULT_NAME = "dgx-spark-sim"


@dataclass(frozen=True, slots=True)
class Settings:
    """One set of simulated nodes.

    ``name`` begins the names of its containers, networks and volumes, so that sets can live side by side.
    ``base_image`` is pulled where a registry answers; elsewhere a Debian root file system is made instead.
    """

    name: str
    nodes: int
    lan: ipaddress.IPv4Network
    fabric: ipaddress.IPv4Network
    base_image: str
    shm_size: str
    cache: Path
    torch_index: str

    @property
    def hostnames(self) -> tuple[str, ...]:
        return tuple(f"spark-{number}" for number in range(1, self.nodes + 1))

    def container(self, hostname: str) -> str:
        return f"{self.name}-{hostname}"

    def lan_address(self, hostname: str) -> str:
        return str(self.lan[10 + number_of(hostname)])

    def fabric_address(self, hostname: str) -> str:
        return str(self.fabric[10 + number_of(hostname)])


def number_of(hostname: str) -> int:
    """1 for ``spark-1``."""
    return int(hostname.rpartition("-")[2])


def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process, or of a given environment."""
    environment = os.environ if environment is None else environment
    name = environment.get("SIM_NAME", DEFAULT_NAME)
    third = 100 if name == DEFAULT_NAME else 101 + zlib.crc32(name.encode()) % 150
    suffix = "" if name == DEFAULT_NAME else f"-{name}"
    return Settings(
        name=name,
        nodes=int(environment.get("SIM_NODES", "2")),
        lan=ipaddress.IPv4Network(environment.get("SIM_LAN", f"10.77.{third}.0/24")),
        fabric=ipaddress.IPv4Network(environment.get("SIM_FABRIC", f"192.168.{third}.0/24")),
        base_image=environment.get("SIM_BASE_IMAGE", "debian:bookworm"),
        shm_size=environment.get("SIM_SHM_SIZE", "8g"),
        cache=REPOSITORY / ".cache" / f"simulator{suffix}",
        torch_index=environment.get("SIM_TORCH_INDEX", "https://download.pytorch.org/whl/cpu"),
    )

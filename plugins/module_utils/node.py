# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node says of itself: pure parsers over the text of /proc, /sys and of commands. They decide nothing."""

from __future__ import annotations

import json


def parse_meminfo(text):
    """Bytes by name from ``/proc/meminfo`` (``MemTotal``, ``MemAvailable``, ``CmaTotal``, ...)."""
    sizes = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        words = value.split()
        if colon and words and words[0].isdigit():
            sizes[name.strip()] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return sizes


def parse_status_groups(text):
    """Group ids of a process from ``/proc/PID/status``, its own group included."""
    groups = set()
    for line in text.splitlines():
        if line.startswith("Groups:"):
            groups.update(int(word) for word in line.split()[1:])
        elif line.startswith("Gid:"):
            groups.add(int(line.split()[1]))
    return sorted(groups)


def parse_interfaces(ip_json):
    """Interfaces from ``ip -j addr``: name, MTU, carrier, MAC and IPv4/IPv6 addresses with their prefix length."""
    interfaces = []
    for link in json.loads(ip_json or "[]"):
        if not link.get("ifname"):
            continue
        interfaces.append(
            {
                "name": link["ifname"],
                "mtu": link.get("mtu"),
                "carrier": "LOWER_UP" in link.get("flags", []),
                "mac": link.get("address"),
                "addresses": [
                    {"address": entry["local"], "prefix": entry.get("prefixlen"), "scope": entry.get("scope")}
                    for entry in link.get("addr_info", [])
                    if entry.get("local")
                ],
            }
        )
    return interfaces


def parse_default_route(ip_json):
    """Device and source address of the default route from ``ip -j route get`` or ``ip -j route show default``."""
    for route in json.loads(ip_json or "[]"):
        if route.get("dev"):
            return {"interface": route["dev"], "address": route.get("prefsrc")}
    return {"interface": None, "address": None}


def interface_of(address, interfaces):
    """The interface that holds an address, in the form of parse_default_route."""
    for interface in interfaces:
        if address and any(entry["address"] == address for entry in interface["addresses"]):
            return {"interface": interface["name"], "address": address}
    return {"interface": None, "address": None}


def parse_docker_info(text):
    """Version, runtimes, default runtime, CDI directories, storage driver and root from ``docker info`` as JSON."""
    info = json.loads(text)
    return {
        "version": info.get("ServerVersion") or None,
        "runtimes": sorted(info.get("Runtimes") or {}),
        "default_runtime": info.get("DefaultRuntime"),
        "cdi_directories": info.get("CDISpecDirs") or [],
        "storage_driver": info.get("Driver"),
        "root": info.get("DockerRootDir"),
        "errors": info.get("ServerErrors") or [],
    }


def parse_docker_images(text):
    """References (tags and digests) from lines of ``docker images --digests`` as JSON."""
    references = set()
    for line in text.splitlines():
        row = json.loads(line)
        if row.get("Tag", "<none>") != "<none>":
            references.add("{}:{}".format(row["Repository"], row["Tag"]))
        if row.get("Digest", "<none>") != "<none>":
            references.add("{}@{}".format(row["Repository"], row["Digest"]))
    return sorted(references)


def parse_gpus(text):
    """GPUs from ``nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader``.

    A GB10 has no memory of its own and prints ``[N/A]`` or ``Not Supported``: memory_total_mib is then null.
    """
    gpus = []
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) < 4:
            continue
        memory = words[3].split()[0] if words[3] else ""
        gpus.append(
            {
                "name": words[0],
                "driver": words[1],
                "compute_capability": words[2],
                "memory_total_mib": int(memory) if memory.isdigit() else None,
            }
        )
    return gpus


def parse_unit_properties(text):
    """Properties of each unit from ``systemctl show UNIT...``: one dict a unit, keys as systemd names them."""
    units, unit = [], {}
    for line in text.splitlines():
        if not line.strip():
            if unit:
                units.append(unit)
            unit = {}
            continue
        key, equals, value = line.partition("=")
        if equals:
            unit[key] = value
    if unit:
        units.append(unit)
    return units

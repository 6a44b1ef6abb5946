"""What the controller needs to reach the nodes: pure text from settings."""

from __future__ import annotations

import shutil
from pathlib import Path
from string import Template
from typing import Any

import yaml

from .settings import Settings

GROUP = "sparks"
HEADER = "# Written by the simulator; changes are lost.\n"


def known_hosts(settings: Settings, public_host_keys: dict[str, str]) -> str:
    """One line a node; the comment of a public key is left out."""
    lines = []
    for hostname, key in public_host_keys.items():
        kind, text = key.split()[:2]
        lines.append(f"{settings.lan_address(hostname)},{hostname} {kind} {text}\n")
    return "".join(lines)


def ssh_config(settings: Settings) -> str:
    """For ``ssh -F FILE spark-1``."""
    blocks = [f"Host {hostname}\n  HostName {settings.lan_address(hostname)}\n" for hostname in settings.hostnames]
    common = (
        "Host spark-*\n  User spark\n"
        f"  IdentityFile {settings.cache / 'id_ed25519'}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {settings.cache / 'known_hosts'}\n  StrictHostKeyChecking yes\n"
    )
    return HEADER + "".join(blocks) + common


def host_variables(settings: Settings) -> dict[str, dict[str, Any]]:
    """Where and how to reach each node. The address on the fabric is left to discovery."""
    known = settings.cache / "known_hosts"
    common_args = f"-o UserKnownHostsFile={known} -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes"
    return {
        hostname: {
            "ansible_host": settings.lan_address(hostname),
            "ansible_user": "spark",
            "ansible_ssh_private_key_file": str(settings.cache / "id_ed25519"),
            "ansible_ssh_common_args": common_args,
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        for hostname in settings.hostnames
    }


def write(settings: Settings, switches: dict[str, str], public_host_keys: dict[str, str]) -> Path:
    """Write everything into the cache; return the directory of the overlay.

    The overlay is an inventory of the same host names and group, to be named after the user's own: its
    host_vars and group_vars win over the same variables there.
    """
    overlay = settings.cache / "overlay"
    shutil.rmtree(overlay, ignore_errors=True)
    for hostname, variables in host_variables(settings).items():
        _write(overlay / "host_vars" / f"{hostname}.yml", HEADER + yaml.safe_dump(variables, width=1000))
    members = {GROUP: {"hosts": dict.fromkeys(settings.hostnames)}}
    _write(overlay / "hosts.yml", HEADER + yaml.safe_dump(members))
    template = Template((Path(__file__).parent / "group_vars.yml").read_text())
    names = ", ".join(settings.hostnames)
    _write(overlay / "group_vars" / f"{GROUP}.yml", HEADER + template.substitute(switches, nodes=f"[{names}]"))
    _write(settings.cache / "ssh_config", ssh_config(settings))
    _write(settings.cache / "known_hosts", known_hosts(settings, public_host_keys))
    return overlay


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)

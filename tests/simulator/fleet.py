"""The nodes: networks, volumes, containers, and their life."""

from __future__ import annotations

import hashlib
import io
import json
import socket
import tarfile
import time
from collections.abc import Iterable
from ipaddress import IPv4Network
from pathlib import Path

from .command import CommandFailed, run
from .engine import docker, docker_ok, inspect
from .settings import Settings

LABEL = "dgx-spark-sim"
SPEC_LABEL = f"{LABEL}.spec"
FABRIC_MTU = 9000

# What systemd and Docker need inside a node. Not --privileged: hosts without CAP_SYS_RESOURCE refuse it.
CAPABILITIES = (
    "SYS_ADMIN", "NET_ADMIN", "NET_RAW", "SYS_PTRACE", "SYS_CHROOT", "MKNOD", "AUDIT_CONTROL", "AUDIT_WRITE",
    "SETFCAP", "DAC_READ_SEARCH", "SYS_NICE", "IPC_LOCK", "SYS_BOOT", "SYS_TIME", "SYSLOG", "LINUX_IMMUTABLE",
    "LEASE", "SYS_MODULE",
)  # fmt: skip


def create_arguments(settings: Settings, hostname: str, image: str, models_volume: str | None) -> list[str]:
    """The arguments of ``docker create`` for one node."""
    arguments = [
        "--name", settings.container(hostname),
        "--hostname", hostname,
        "--label", f"{LABEL}={settings.name}",
        "--network", f"{settings.name}-lan",
        "--ip", settings.lan_address(hostname),
        "--cgroupns", "private",
        "--security-opt", "seccomp=unconfined",
        "--security-opt", "apparmor=unconfined",
        "--security-opt", "systempaths=unconfined",
        "--device-cgroup-rule", "a *:* rwm",
        "--tmpfs", "/run:exec",
        "--tmpfs", "/run/lock",
        "--tmpfs", "/tmp:exec,mode=1777",
        "--shm-size", settings.shm_size,
        # A reboot from inside ends the container; a real machine comes back. A killed one stays dead.
        "--restart", "unless-stopped",
        "--volume", f"{docker_volume(settings, hostname)}:/var/lib/docker",
    ]  # fmt: skip
    for capability in CAPABILITIES:
        arguments += ["--cap-add", capability]
    if models_volume:
        arguments += ["--volume", f"{models_volume}:/usr/share/simulator/models:ro"]
    return [*arguments, image]


def spec_hash(arguments: Iterable[str], *more: str) -> str:
    return hashlib.sha256("\0".join([*arguments, *more]).encode()).hexdigest()[:16]


def docker_volume(settings: Settings, hostname: str) -> str:
    return f"{settings.container(hostname)}-docker"


def ensure_networks(settings: Settings) -> None:
    """The LAN leads outside; the fabric joins the nodes only, with jumbo frames."""
    lan_mtu = min(1500, _mtu_of_default_route())
    _ensure_network(settings, "lan", settings.lan, lan_mtu, [])
    _ensure_network(settings, "fabric", settings.fabric, FABRIC_MTU, ["--internal"])


def _ensure_network(settings: Settings, kind: str, subnet: IPv4Network, mtu: int, more: list[str]) -> None:
    name = f"{settings.name}-{kind}"
    if docker_ok("network", "inspect", name):
        return
    # The name of a host interface has at most 15 characters.
    bridge = f"sim{hashlib.sha256(name.encode()).hexdigest()[:6]}{kind[:3]}"
    docker("network", "create", "--label", f"{LABEL}={settings.name}", "--subnet", str(subnet),
           "--opt", f"com.docker.network.driver.mtu={mtu}",
           "--opt", f"com.docker.network.bridge.name={bridge}", *more, name)  # fmt: skip


def _mtu_of_default_route() -> int:
    routes = json.loads(run(["ip", "-json", "route", "show", "default"]) or "[]")
    if not routes:
        return 1500
    return int(Path(f"/sys/class/net/{routes[0]['dev']}/mtu").read_text())


def identity_archive(authorized_key: str, host_key: Path) -> bytes:
    """The files that make one node this node, as a tar archive: who may log in, and what it proves to be."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for path, mode, owner, content in (
            ("home/spark/.ssh", 0o700, 1000, None),
            ("home/spark/.ssh/authorized_keys", 0o600, 1000, authorized_key),
            ("etc/ssh/ssh_host_ed25519_key", 0o600, 0, host_key.read_text()),
            ("etc/ssh/ssh_host_ed25519_key.pub", 0o644, 0, host_key.with_suffix(".pub").read_text()),
        ):
            entry = tarfile.TarInfo(path)
            entry.mode, entry.uid, entry.gid, entry.mtime = mode, owner, owner, int(time.time())
            data = (content or "").encode()
            entry.type = tarfile.REGTYPE if content is not None else tarfile.DIRTYPE
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def ensure_node(settings: Settings, hostname: str, image: str, store: str | None, models: str | None) -> None:
    """Make, start or keep one node; one made from other parts is made anew."""
    container = settings.container(hostname)
    arguments = create_arguments(settings, hostname, image, models)
    image_id = docker("image", "inspect", "--format", "{{.Id}}", image)
    spec = spec_hash(arguments, image_id, store or "")
    known = inspect("container", container)
    if known and known["Config"]["Labels"].get(SPEC_LABEL) != spec:
        remove_node(settings, hostname)
        known = None
    if not known:
        remove_node(settings, hostname)
        docker("volume", "create", "--label", f"{LABEL}={settings.name}", docker_volume(settings, hostname))
        if store:
            copy_store(image, store, docker_volume(settings, hostname))
        docker("create", "--label", f"{SPEC_LABEL}={spec}", *arguments)
        docker(
            "network",
            "connect",
            "--ip",
            settings.fabric_address(hostname),
            f"{settings.name}-fabric",
            container,
        )
        key = (settings.cache / "id_ed25519.pub").read_text()
        docker("cp", "-", f"{container}:/", stdin=identity_archive(key, settings.cache / f"{hostname}_host_key"))
    if not known or not known["State"]["Running"]:
        docker("start", container)


def copy_store(image: str, source: str, target: str) -> None:
    """Give a node the Docker store with the serving image in it.

    Layers are hard-linked: Docker never writes to a layer once made, and gigabytes take a second.
    """
    volumes = f"{docker('info', '--format', '{{.DockerRootDir}}')}/volumes"
    script = ('cd "/volumes/$1/_data" && for part in *; do '
              'if [ "$part" = overlay2 ]; then how=-al; else how=-a; fi; '
              'cp "$how" "$part" "/volumes/$2/_data/"; done')  # fmt: skip
    docker("run", "--rm", "--network", "none", "--volume", f"{volumes}:/volumes", "--entrypoint", "sh", image,
           "-c", script, "copy-store", source, target)  # fmt: skip


def remove_node(settings: Settings, hostname: str) -> None:
    container = settings.container(hostname)
    if docker_ok("container", "inspect", container):
        docker("rm", "--force", "--volumes", container)
    if docker_ok("volume", "inspect", docker_volume(settings, hostname)):
        docker("volume", "rm", "--force", docker_volume(settings, hostname))


def wait_for_ssh(settings: Settings, hostname: str, limit_seconds: float = 60) -> None:
    """Until sshd of that node greets."""
    end = time.monotonic() + limit_seconds
    while time.monotonic() < end:
        try:
            with socket.create_connection((settings.lan_address(hostname), 22), timeout=2) as connection:
                if connection.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        time.sleep(0.2)
    last_words = docker("logs", "--tail", "20", settings.container(hostname))
    raise CommandFailed(f"{hostname} does not answer on ssh within {limit_seconds:.0f} s.\n{last_words}")


def start(settings: Settings, hostname: str) -> None:
    docker("start", settings.container(hostname))
    wait_for_ssh(settings, hostname)


def kill(settings: Settings, hostname: str) -> None:
    """A power cut."""
    docker("kill", settings.container(hostname))


def reboot(settings: Settings, hostname: str) -> None:
    """An orderly shutdown and a boot."""
    docker("stop", "--time", "60", settings.container(hostname))
    start(settings, hostname)


def existing(settings: Settings) -> list[str]:
    """Host names of all nodes that are there, running or not."""
    names = docker("ps", "--all", "--filter", f"label={LABEL}={settings.name}", "--format", "{{.Names}}").split()
    return sorted(name.removeprefix(f"{settings.name}-") for name in names)


def remove_networks(settings: Settings) -> None:
    for kind in ("lan", "fabric"):
        if docker_ok("network", "inspect", f"{settings.name}-{kind}"):
            docker("network", "rm", f"{settings.name}-{kind}")

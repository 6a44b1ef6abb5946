"""Command line: ``python -m simulator up`` from tests/."""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from . import engine, fleet, images, inventory
from .command import CommandFailed, run, step
from .settings import Settings, from_environment


def up(settings: Settings, bare: bool) -> None:
    """Make what is missing, start what stands still, write how to reach it."""
    settings.cache.mkdir(parents=True, exist_ok=True)
    with step("nodes up"):
        engine.ensure()
        node_image = images.ensure_node_image(settings)
        store = None if bare else images.ensure_store(settings, node_image)
        host_keys = _ensure_keys(settings)
        fleet.ensure_networks(settings)
        for surplus in set(fleet.existing(settings)) - set(settings.hostnames):
            fleet.remove_node(settings, surplus)
        with ThreadPoolExecutor() as pool:
            list(pool.map(partial(_bring_up, settings, node_image, store), settings.hostnames))
        overlay = inventory.write(settings, images.substitutions(), host_keys)
    print(f"inventory overlay: {overlay}")
    print(f"log in with: ssh -F {settings.cache}/ssh_config {settings.hostnames[0]}")


def _bring_up(settings: Settings, node_image: str, store: images.Store | None, hostname: str) -> None:
    docker_volume, models_volume = (store.docker_volume, store.models_volume) if store else (None, None)
    fleet.ensure_node(settings, hostname, node_image, docker_volume, models_volume)
    fleet.wait_for_ssh(settings, hostname)


def _ensure_keys(settings: Settings) -> dict[str, str]:
    """The user's key and each node's host key; returns the public host keys."""
    for name in ("id_ed25519", *(f"{hostname}_host_key" for hostname in settings.hostnames)):
        path = settings.cache / name
        if not path.exists():
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "simulator", "-f", str(path)])
    return {name: (settings.cache / f"{name}_host_key.pub").read_text() for name in settings.hostnames}


def down(settings: Settings, everything: bool) -> None:
    """Remove what was made; with ``everything`` also images, stores and an engine started for it."""
    if not engine.answers():
        return
    with step("nodes down"):
        with ThreadPoolExecutor() as pool:
            list(pool.map(partial(fleet.remove_node, settings), fleet.existing(settings)))
        fleet.remove_networks(settings)
    if everything:
        with step("images, stores and caches removed"):
            images.remove_all()
            engine.stop()
            run(["rm", "-rf", str(settings.cache)])


def status(settings: Settings) -> None:
    """One line a node."""
    for hostname in fleet.existing(settings):
        state = engine.docker("inspect", "--format", "{{.State.Status}}", settings.container(hostname))
        lan, fabric = settings.lan_address(hostname), settings.fabric_address(hostname)
        print(f"{hostname}  {state}  lan {lan}  fabric {fabric}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="simulator", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command_up = commands.add_parser("up", help="make or start the nodes")
    command_up.add_argument("--bare", action="store_true", help="nodes without the serving image and models")
    command_down = commands.add_parser("down", help="remove nodes, networks and their volumes")
    command_down.add_argument("--all", action="store_true", help="images, stores and caches too")
    commands.add_parser("status", help="one line a node")
    commands.add_parser("inventory", help="print the directory of the inventory overlay")
    for name, what in (("reboot", "shut down and boot"), ("kill", "power cut"), ("start", "boot")):
        commands.add_parser(name, help=what).add_argument("nodes", nargs="+", metavar="NODE")
    command_exec = commands.add_parser("exec", help="run a command on a node as root")
    command_exec.add_argument("node")
    command_exec.add_argument("argv", nargs=argparse.REMAINDER)
    arguments = parser.parse_args(argv)
    settings = from_environment()
    try:
        match arguments.command:
            case "up":
                up(settings, arguments.bare)
            case "down":
                down(settings, arguments.all)
            case "status":
                status(settings)
            case "inventory":
                print(settings.cache / "overlay")
            case "exec":
                words = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
                return subprocess.call([*engine.client(), "exec", settings.container(arguments.node), *words])
            case "reboot" | "kill" | "start" as name:
                with ThreadPoolExecutor() as pool:
                    list(pool.map(partial(getattr(fleet, name), settings), arguments.nodes))
    except CommandFailed as failure:
        print(f"simulator: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Does of nvidia-ctk what deployments ask for: its version, the runtime in Docker's configuration, the CDI list."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from pathlib import Path

DEVICES = (
    "nvidia.com/gpu=0",
    "nvidia.com/gpu=GPU-00000000-0000-0000-0000-000000000001",
    "nvidia.com/gpu=all",
)


def log(message: str) -> None:
    stamp = datetime.now().astimezone().isoformat(timespec="seconds")
    print(f'time="{stamp}" level=info msg="{message}"', file=sys.stderr)


def configure_docker(path: Path, as_default: bool) -> None:
    """Add the nvidia runtime and keep all else, as the real one does."""
    text = path.read_text() if path.exists() else ""
    configuration = json.loads(text) if text.strip() else {}
    runtimes = configuration.setdefault("runtimes", {})
    runtimes["nvidia"] = {"args": [], "path": "nvidia-container-runtime"}
    if as_default:
        configuration["default-runtime"] = "nvidia"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(configuration, indent=4) + "\n")
    log(f"Wrote updated config to {path}")


def main(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-v"]):
        print("NVIDIA Container Toolkit CLI version 1.18.2\ncommit: 0000000000000000000000000000000000000000")
    elif arguments[:2] == ["runtime", "configure"]:
        parser = argparse.ArgumentParser()
        parser.add_argument("--runtime", default="docker", choices=["docker"])
        parser.add_argument("--config", type=Path, default=Path("/etc/docker/daemon.json"))
        parser.add_argument("--set-as-default", "--nvidia-set-as-default", action="store_true")
        chosen = parser.parse_args(arguments[2:])
        configure_docker(chosen.config, chosen.set_as_default)
    elif arguments[:2] == ["cdi", "list"]:
        log(f"Found {len(DEVICES)} CDI devices")
        print("\n".join(DEVICES))
    else:
        print(f"this stand-in does not know: nvidia-ctk {' '.join(arguments)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

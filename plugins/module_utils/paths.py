# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where a deployment lives on its nodes. Every path here is below the home of the serving user."""

from __future__ import annotations

import os
import pwd
import re

UNIT_DIRECTORY = ".config/systemd/user"
CONFIG_DIRECTORY = ".config/dgx-spark-vllm"
RECORD_DIRECTORY = ".local/state/dgx-spark-vllm"
CACHE_DIRECTORY = ".cache/dgx-spark-vllm"
NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")


def home() -> str:
    """The home of the user this process runs as."""
    return os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir


def is_deployment_name(name: str) -> bool:
    """Whether a name can stand in a unit, a container and a file name alike."""
    return NAME.fullmatch(name) is not None


def unit_name(deployment: str) -> str:
    """The unit of a deployment in the serving user's systemd."""
    return f"vllm-{deployment}.service"


def container_name(deployment: str) -> str:
    """The container of a deployment on each of its nodes."""
    return f"vllm-{deployment}"


def unit_path(home: str, deployment: str) -> str:
    """Absolute path of the unit file."""
    return os.path.join(home, UNIT_DIRECTORY, unit_name(deployment))


def config_path(home: str, deployment: str) -> str:
    """Absolute path of the directory that the container sees as ``/spark`` (mode 0700)."""
    return os.path.join(home, CONFIG_DIRECTORY, deployment)


def record_path(home: str, deployment: str) -> str:
    """Absolute path of the record: the plan a deployment was started from, as JSON."""
    return os.path.join(home, RECORD_DIRECTORY, deployment + ".json")


def secret_path(config: str, name: str) -> str:
    """Path of a secret in the directory of a deployment."""
    return os.path.join(config, name + ".secret")

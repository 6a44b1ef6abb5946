"""What the nodes are made of: base image, node image, and a store with the serving image and the models.

A store is a Docker data directory in a volume. The serving image is built inside it, by an engine of the
nodes' own kind, and never moved: nodes get hard links to its layers.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import engine
from .command import CommandFailed, run, step
from .engine import docker, docker_ok, inspect
from .fleet import CAPABILITIES, LABEL
from .pip_settings import from_config_list
from .settings import HERE, Settings

VLLM_VERSION = "0.32.0"
SERVING_IMAGE = f"dgx-spark-sim/vllm-cpu:{VLLM_VERSION}"
FALLBACK_BASE = "dgx-spark-sim/base:bookworm"


@dataclass(frozen=True, slots=True)
class Store:
    """Names of the volumes, and of the container that built them and keeps them from being pruned."""

    container: str

    @property
    def docker_volume(self) -> str:
        return self.container

    @property
    def models_volume(self) -> str:
        return f"{self.container}-models"


def substitutions() -> dict[str, str]:
    return {"image": SERVING_IMAGE, "vllm_version": VLLM_VERSION}


def digest_of(folder: Path, *more: str) -> str:
    """A short digest of all files below a folder: names, modes and contents."""
    digest = hashlib.sha256("\0".join(more).encode())
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(f"\0{path.relative_to(folder)}\0{path.stat().st_mode & 0o111}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def ensure_node_image(settings: Settings) -> str:
    image = f"dgx-spark-sim/node:{digest_of(HERE / 'node', settings.base_image)}"
    if docker_ok("image", "inspect", image):
        return image
    base = ensure_base(settings)
    with step("build the node image"):
        docker("build", "--network", "host", "--build-arg", f"BASE={base}", "--label", f"{LABEL}=image",
               "--tag", image, str(HERE / "node"), log=str(settings.cache / "node-image.log"))  # fmt: skip
    return image


def ensure_base(settings: Settings) -> str:
    """The chosen base image, or one made here when no registry answers."""
    if docker_ok("image", "inspect", settings.base_image):
        return settings.base_image
    if docker_ok("image", "inspect", FALLBACK_BASE):
        return FALLBACK_BASE
    with step(f"pull {settings.base_image}"):
        if docker_ok("pull", settings.base_image):
            return settings.base_image
    with step("no registry answers: make a Debian root file system"):
        engine.apt_install(["mmdebstrap"])
        with tempfile.TemporaryDirectory(dir=settings.cache) as folder:
            archive = f"{folder}/base.tar"
            options = ("--variant=minbase", "--include=ca-certificates")
            command = engine.as_root("mmdebstrap", *options, "bookworm", archive)
            run(command, log=str(settings.cache / "base.log"))
            docker("import", "--change", f"LABEL {LABEL}=image", archive, FALLBACK_BASE)
    return FALLBACK_BASE


def ensure_store(settings: Settings, node_image: str) -> Store:
    """Build once; a builder that ended well is the proof that the store is complete."""
    store = Store(f"dgx-spark-sim-store-{digest_of(HERE / 'serving', settings.base_image)}")
    known = inspect("container", store.container)
    if known and known["State"]["Status"] == "exited" and known["State"]["ExitCode"] == 0:
        return store
    remove_store(store)
    base = ensure_base(settings)
    with step("build the serving image (real vLLM and Ray for the CPU) and the models"):
        _build_store(settings, store, node_image, base)
    return store


def _build_store(settings: Settings, store: Store, node_image: str, base: str) -> None:
    pip = from_config_list(run([sys.executable, "-m", "pip", "config", "list"]))
    arguments = ["--name", store.container, "--label", f"{LABEL}=store", "--network", "host", "--interactive"]
    arguments += ["--cgroupns", "private", "--device-cgroup-rule", "a *:* rwm", "--tmpfs", "/run:exec"]
    for security in ("seccomp", "apparmor", "systempaths"):
        arguments += ["--security-opt", f"{security}=unconfined"]
    for capability in CAPABILITIES:
        arguments += ["--cap-add", capability]
    for volume in (
        f"{store.docker_volume}:/var/lib/docker",
        f"{store.models_volume}:/models",
        f"{HERE / 'serving'}:/build:ro",
        *pip.volumes(),
    ):
        arguments += ["--volume", volume]
    environment = {"BASE": base, "IMAGE": SERVING_IMAGE, "VLLM_VERSION": VLLM_VERSION,
                   "TORCH_INDEX": settings.torch_index, "VOLUMES": " ".join(pip.volumes()),
                   "PIP_VARIABLES": " ".join(pip.environment), **pip.environment}  # fmt: skip
    for name, value in environment.items():
        arguments += ["--env", f"{name}={value}"]
    log = settings.cache / "serving-image.log"
    with log.open("wb") as stream:
        save = subprocess.Popen([*engine.client(), "save", base], stdout=subprocess.PIPE)
        build = subprocess.run(
            [*engine.client(), "run", *arguments, "--entrypoint", "/build/build-store", node_image],
            stdin=save.stdout, stdout=stream, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    if build.returncode or save.wait():
        last_words = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        raise CommandFailed(f"the serving image could not be built\n{last_words}\n(all of it: {log})")


def _stores() -> list[Store]:
    names = docker("ps", "--all", "--filter", f"label={LABEL}=store", "--format", "{{.Names}}").split()
    return [Store(name) for name in names]


def remove_store(store: Store) -> None:
    if docker_ok("container", "inspect", store.container):
        docker("rm", "--force", store.container)
    docker("volume", "rm", "--force", store.docker_volume, store.models_volume)


def remove_all() -> None:
    """All stores, images and base images that any settings made."""
    for store in _stores():
        remove_store(store)
    for image in docker("images", "--quiet", "--filter", f"label={LABEL}=image").split():
        docker("rmi", "--force", image)

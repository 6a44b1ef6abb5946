"""The pure parts of the simulator, and its stand-ins for NVIDIA's tools."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.dgx_spark.vllm.tests.simulator import fleet, images, inventory
from ansible_collections.dgx_spark.vllm.tests.simulator.pip_settings import from_config_list
from ansible_collections.dgx_spark.vllm.tests.simulator.settings import HERE, Settings, from_environment

TOOLS = HERE / "node" / "files" / "usr" / "local" / "lib" / "simulator"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    chosen = from_environment({"SIM_NODES": "3"})
    return Settings(**{name: getattr(chosen, name) for name in chosen.__slots__} | {"cache": tmp_path})


def test_addresses_follow_the_host_name(settings: Settings) -> None:
    assert settings.hostnames == ("spark-1", "spark-2", "spark-3")
    assert settings.lan_address("spark-3") == "10.77.100.13"
    assert settings.fabric_address("spark-3") == "192.168.100.13"


def test_another_name_has_its_own_networks_and_cache() -> None:
    default, other = from_environment({}), from_environment({"SIM_NAME": "other"})
    assert not default.lan.overlaps(other.lan)
    assert not default.fabric.overlaps(other.fabric)
    assert default.cache != other.cache
    assert default.container("spark-1") != other.container("spark-1")


def test_a_node_is_not_privileged(settings: Settings) -> None:
    arguments = fleet.create_arguments(settings, "spark-1", "image", "models")
    assert "--privileged" not in arguments
    assert arguments[-1] == "image"
    assert "dgx-spark-sim-spark-1-docker:/var/lib/docker" in arguments


def test_the_spec_changes_with_its_parts(settings: Settings) -> None:
    one = fleet.create_arguments(settings, "spark-1", "image", None)
    assert fleet.spec_hash(one, "id") == fleet.spec_hash(one, "id")
    assert fleet.spec_hash(one, "id") != fleet.spec_hash(one, "other id")


@pytest.mark.parametrize("change", ["content", "mode", "name"])
def test_digest_sees_content_mode_and_name(tmp_path: Path, change: str) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    before = images.digest_of(tmp_path)
    if change == "content":
        file.write_text("two")
    elif change == "mode":
        file.chmod(0o755)
    else:
        file.rename(tmp_path / "other")
    assert images.digest_of(tmp_path) != before


def test_overlay_holds_hosts_reach_and_switches(settings: Settings) -> None:
    keys = dict.fromkeys(settings.hostnames, "ssh-ed25519 AAAA comment\n")
    overlay = inventory.write(settings, images.substitutions(), keys)
    assert list(yaml.safe_load((overlay / "hosts.yml").read_text())["sparks"]["hosts"]) == list(settings.hostnames)
    host = yaml.safe_load((overlay / "host_vars" / "spark-2.yml").read_text())
    assert host["ansible_host"] == "10.77.100.12"
    assert "StrictHostKeyChecking=yes" in host["ansible_ssh_common_args"]
    switches = yaml.safe_load((overlay / "group_vars" / "sparks.yml").read_text())
    assert switches["vllm_image"] == images.SERVING_IMAGE
    assert switches["vllm_nodes"] == list(settings.hostnames)
    assert (settings.cache / "known_hosts").read_text().splitlines()[0] == "10.77.100.11,spark-1 ssh-ed25519 AAAA"


def test_pip_settings_name_what_must_be_mounted(tmp_path: Path) -> None:
    wheels, index = tmp_path / "wheels", tmp_path / "index"
    wheels.mkdir()
    (index / "simple").mkdir(parents=True)
    listing = "\n".join(
        (
            ":env:.find-links='/not/there'",
            f"global.find-links='{wheels}'",
            f"global.extra-index-url='file://{index}/simple\\nhttps://example.org/simple'",
            "freeze.timeout='10'",
        )
    )
    pip = from_config_list(listing)
    assert pip.paths == (str(index), str(wheels))
    assert pip.environment == {
        "PIP_FIND_LINKS": str(wheels),
        "PIP_EXTRA_INDEX_URL": f"file://{index}/simple https://example.org/simple",
    }


def tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOLS / f"{name.replace('-', '_')}.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["-L"], "GPU 0: NVIDIA GB10 (UUID: GPU-00000000-0000-0000-0000-000000000001)\n"),
        (
            ["--query-gpu=name,driver_version,compute_cap,memory.total", "--format=csv,noheader"],
            "NVIDIA GB10, 580.142, 12.1, [N/A]\n",
        ),
        (
            ["--query-gpu=clocks.max.graphics,memory.used", "--format=csv"],
            "clocks.max.graphics [MHz], memory.used\n3003 MHz, [N/A]\n",
        ),
        (["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"], "0\n"),
        (["--query-compute-apps=pid,process_name", "--format=csv,noheader"], ""),
    ],
)
def test_nvidia_smi_prints_as_on_a_gb10(arguments: list[str], printed: str) -> None:
    assert tool("nvidia-smi", *arguments).stdout == printed


def test_nvidia_smi_refuses_what_the_real_one_refuses() -> None:
    assert tool("nvidia-smi", "--query-gpu=nonsense", "--format=csv").returncode == 2


def test_nvidia_ctk_keeps_what_docker_was_told_before(tmp_path: Path) -> None:
    configuration = tmp_path / "daemon.json"
    configuration.write_text('{"log-driver": "journald"}')
    assert tool("nvidia-ctk", "runtime", "configure", "--runtime=docker", f"--config={configuration}").returncode == 0
    assert json.loads(configuration.read_text()) == {
        "log-driver": "journald",
        "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}},
    }

#!/usr/bin/python
# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_facts
short_description: Gather in one call what plan, roles and checks need to know of a node
version_added: 0.1.0
description:
  - Reads memory, interfaces, GPU, Docker, the serving user and the deployments of a node.
  - Returns data and decides nothing. What can't be told is null or empty, never an error.
  - A GB10 reports no GPU memory of its own, as CPU and GPU share one pool. Use C(memory.available_bytes).
  - The serving user is the one this module runs as.
extends_documentation_fragment:
  - dgx_spark.vllm.on_node
"""

EXAMPLES = r"""
- name: Look at the node
  dgx_spark.vllm.node_facts:
  register: node
"""

RETURN = r"""
node:
  description: What the node says of itself.
  returned: always
  type: dict
  contains:
    architecture:
      description: Machine type as C(uname -m) prints it.
      type: str
    boot_id:
      description: Changes with every boot.
      type: str
    memory:
      description:
        - Sizes in bytes as C(total_bytes), C(available_bytes), C(swap_bytes), C(cma_total_bytes) and C(cma_free_bytes).
      type: dict
    interfaces:
      description: Name, MTU, carrier, speed in Mb/s, driver, RDMA device and addresses of each interface.
      type: list
      elements: dict
    lan:
      description: Interface and address that the default route uses.
      type: dict
    gpus:
      description: Name, driver, compute capability and memory in MiB (null on unified memory) of each GPU.
      type: list
      elements: dict
    docker:
      description: Path, version, runtimes, images, and whether the serving user reaches the engine.
      type: dict
    nvidia:
      description: Paths of C(nvidia-ctk) and of the runtime hook, and CDI specifications on disk.
      type: dict
    user:
      description: Name, ids, home, groups on disk and of the running user manager, linger.
      type: dict
    units:
      description: Units named C(vllm-*) of the serving user with their state.
      type: list
      elements: dict
    deployments:
      description: Records of the deployments on this node, by name.
      type: dict
"""

import glob
import grp
import importlib.util
import json
import os
import platform
import pwd

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils import node as parsers
from ansible_collections.dgx_spark.vllm.plugins.module_utils import paths
from ansible_collections.dgx_spark.vllm.plugins.module_utils.systemd import UserSystemd

GPU_QUERY = ["--query-gpu=name,driver_version,compute_cap,memory.total", "--format=csv,noheader"]


class NodeFacts:
    """One look at a node; every method returns plain data."""

    def __init__(self, module):
        self.module = module
        self.account = pwd.getpwuid(os.getuid())

    def output(self, command, *arguments):
        """What a command prints, or an empty text when it is missing or fails."""
        path = self.module.get_bin_path(command, opt_dirs=["/usr/sbin", "/sbin"])
        if not path:
            return ""
        code, out, _err = self.module.run_command([path, *list(arguments)])
        return out if code == 0 else ""

    def gather(self):
        """Everything, as the module returns it."""
        return {
            "architecture": platform.machine(),
            "kernel": platform.release(),
            "boot_id": read("/proc/sys/kernel/random/boot_id").strip(),
            "memory": self.memory(),
            "interfaces": self.interfaces(),
            "lan": self.lan(),
            "gpus": parsers.parse_gpus(self.output("nvidia-smi", *GPU_QUERY)),
            "docker": self.docker(),
            "nvidia": self.nvidia(),
            "user": self.user(),
            "units": UserSystemd(self.module).units("vllm-*.service"),
            "deployments": self.deployments(),
        }

    def memory(self):
        sizes = parsers.parse_meminfo(read("/proc/meminfo"))
        names = {
            "total_bytes": "MemTotal",
            "available_bytes": "MemAvailable",
            "swap_bytes": "SwapTotal",
            "cma_total_bytes": "CmaTotal",
            "cma_free_bytes": "CmaFree",
        }
        return {ours: sizes.get(theirs) for ours, theirs in names.items()}

    def interfaces(self):
        interfaces = parsers.parse_interfaces(self.output("ip", "-j", "addr"))
        for interface in interfaces:
            device = "/sys/class/net/{}".format(interface["name"])
            speed = read(device + "/speed").strip()
            interface["speed_mbps"] = int(speed) if speed.isdigit() else None
            driver = os.path.realpath(device + "/device/driver")
            interface["driver"] = os.path.basename(driver) if os.path.exists(driver) else None
            interface["rdma_devices"] = sorted(
                os.path.basename(path) for path in glob.glob(device + "/device/infiniband/*")
            )
        return interfaces

    def lan(self):
        """The interface of the default route; without one, the interface that this connection came in by."""
        route = parsers.parse_default_route(self.output("ip", "-j", "-4", "route", "get", "192.0.2.1"))
        if route["interface"]:
            return route
        came_in_by = (os.environ.get("SSH_CONNECTION", "").split() + [""] * 3)[2]
        return parsers.interface_of(came_in_by, parsers.parse_interfaces(self.output("ip", "-j", "addr")))

    def docker(self):
        path = self.module.get_bin_path("docker")
        facts = {
            "path": path,
            "version": None,
            "runtimes": [],
            "images": [],
            "reachable": False,
            "python_requests": has_requests(),
        }
        if path:
            text = self.output("docker", "info", "--format", "{{json .}}")
            info = parsers.parse_docker_info(text) if text else {"errors": ["no answer"]}
            facts["reachable"] = not info.pop("errors")
            facts.update(info)
            if facts["reachable"]:
                facts["images"] = parsers.parse_docker_images(
                    self.output("docker", "images", "--digests", "--format", "{{json .}}")
                )
        return facts

    def nvidia(self):
        hook = self.module.get_bin_path("nvidia-container-runtime-hook")
        return {
            "ctk": self.module.get_bin_path("nvidia-ctk"),
            "runtime": self.module.get_bin_path("nvidia-container-runtime"),
            "hook": hook,
            "cdi": sorted(glob.glob("/etc/cdi/nvidia*") + glob.glob("/var/run/cdi/nvidia*")),
        }

    def user(self):
        account = self.account
        on_disk = {group.gr_name for group in grp.getgrall() if account.pw_name in group.gr_mem}
        on_disk.add(grp.getgrgid(account.pw_gid).gr_name)
        return {
            "name": account.pw_name,
            "uid": account.pw_uid,
            "gid": account.pw_gid,
            "home": account.pw_dir,
            "groups": sorted(on_disk),
            "manager_groups": self.manager_groups(),
            "linger": os.path.exists(f"/var/lib/systemd/linger/{account.pw_name}"),
        }

    def manager_groups(self):
        """Names of the groups that the running user manager holds; null when none runs."""
        names = {group.gr_gid: group.gr_name for group in grp.getgrall()}
        for path in glob.glob("/proc/[0-9]*/comm"):
            directory = os.path.dirname(path)
            try:
                if read(path).strip() != "systemd" or os.stat(directory).st_uid != self.account.pw_uid:
                    continue
            except OSError:
                continue
            groups = parsers.parse_status_groups(read(directory + "/status"))
            return sorted(names.get(gid, str(gid)) for gid in groups)
        return None

    def deployments(self):
        records = {}
        for path in sorted(glob.glob(os.path.join(self.account.pw_dir, paths.RECORD_DIRECTORY, "*.json"))):
            try:
                records[os.path.basename(path)[: -len(".json")]] = json.loads(read(path))
            except ValueError:
                records[os.path.basename(path)[: -len(".json")]] = {}
        return records


def read(path):
    """The text of a file, empty when it can't be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def has_requests():
    """Whether Python modules that talk to Docker's API can run here."""
    return importlib.util.find_spec("requests") is not None


def main():
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(changed=False, node=NodeFacts(module).gather())


if __name__ == "__main__":
    main()

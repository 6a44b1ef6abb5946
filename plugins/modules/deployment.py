#!/usr/bin/python
# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: deployment
short_description: Make one node hold, run, stop or forget its part of a deployment
version_added: 0.1.0
description:
  - Writes the files, the unit and the record of a deployment below the home of the user this module runs as,
    and brings the unit of that user's systemd to the wished state.
  - Says whether a running container was made from other files than the present ones, by its label
    C(dgx-spark.fingerprint), so that an interrupted run is made good by the next.
  - Needs no root. The user manager must be running, which linger sees to.
options:
  name:
    description: Name of the deployment, in lower case letters, digits, dots and dashes.
    type: str
    required: true
  state:
    description:
      - V(present) writes all and enables the unit; what runs goes on running.
      - V(started) starts the unit when it does not run, and writes nothing.
      - V(stopped) stops the unit and leaves the files.
      - V(absent) stops the unit and removes all that V(present) wrote.
    type: str
    choices: [present, started, stopped, absent]
    default: present
  unit:
    description: Text of the unit file. Needed with O(state=present).
    type: str
  files:
    description: Files that the container sees below C(/spark).
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the file, without directories.
        type: str
        required: true
      content:
        description: Text of the file.
        type: str
        required: true
      mode:
        description: Mode of the file as an octal number.
        type: str
        default: "0600"
  secrets:
    description:
      - Values by name. Each becomes a file C(NAME.secret) (mode 0600) for the container. A diff does not show them.
    type: dict
    default: {}
  directories:
    description:
      - Directories that the container mounts. Missing ones are made, so that Docker does not make them for root.
    type: list
    elements: path
    default: []
  record:
    description: What the deployment was started from. Kept as JSON so that nothing has to be guessed later.
    type: dict
    default: {}
  fingerprint:
    description: The label C(dgx-spark.fingerprint) that a container made from these files carries.
    type: str
    default: ""
extends_documentation_fragment:
  - dgx_spark.vllm.on_node
attributes:
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: Hold
  dgx_spark.vllm.deployment:
    name: qwen3-30b
    unit: "{{ lookup('ansible.builtin.template', 'vllm.service.j2') }}"
    record: {plan: "{{ vllm_plan }}"}
    fingerprint: "{{ container.fingerprint }}"

- name: Forget
  dgx_spark.vllm.deployment:
    name: qwen3-30b
    state: absent
"""

RETURN = r"""
actions:
  description: What was done, or in check mode what would be done, in words.
  returned: always
  type: list
  elements: str
  sample: ["write /home/spark/.config/systemd/user/vllm-qwen.service", "restart vllm-qwen.service"]
restart_needed:
  description: Whether nothing runs yet, or a container that was not made from the present files.
  returned: with state present
  type: bool
unit:
  description: Properties of the unit afterwards, named as systemd names them.
  returned: always
  type: dict
"""

import json
import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils import files as text_files
from ansible_collections.dgx_spark.vllm.plugins.module_utils import paths
from ansible_collections.dgx_spark.vllm.plugins.module_utils.systemd import UserSystemd

LABEL = '{{index .Config.Labels "dgx-spark.fingerprint"}}'
RUNNING = ("active", "activating", "reloading")


class Deployment:
    """Brings one deployment of the user this module runs as to the wished state."""

    def __init__(self, module):
        self.module = module
        self.name = module.params["name"]
        self.systemd = UserSystemd(module)
        self.unit_name = paths.unit_name(self.name)
        home = paths.home()
        self.unit_path = paths.unit_path(home, self.name)
        self.config_path = paths.config_path(home, self.name)
        self.record_path = paths.record_path(home, self.name)
        self.actions = []
        self.differences = []

    def ensure(self):
        """Reach the wished state and return the module's result."""
        state, result = self.module.params["state"], {}
        if state == "present":
            self.write()
            self.enable()
            result["restart_needed"] = self.unit().get("ActiveState") not in RUNNING or self.container_differs()
        elif state == "started":
            if self.unit().get("ActiveState") not in RUNNING or self.module.check_mode:
                self.act(f"start {self.unit_name}", ["start", self.unit_name])
        else:
            self.stop()
            if state == "absent":
                self.remove()
        return dict(result, changed=bool(self.actions), actions=self.actions, diff=self.differences, unit=self.unit())

    def unit(self):
        """Properties of the unit; empty when no user manager answers."""
        units = self.systemd.show(self.unit_name)
        return units[0] if units else {}

    def act(self, words, *commands):
        """Note an action; outside check mode run its systemctl commands."""
        self.actions.append(words)
        if self.module.check_mode:
            return
        for command in commands:
            code, out, err = self.systemd.run(*command)
            if code:
                self.module.fail_json(
                    msg="systemctl --user {} failed: {}".format(" ".join(command), (err or out).strip()),
                    actions=self.actions,
                )

    def have(self, directory):
        """Make a directory that the container mounts; complain of one that the container could not write."""
        if not os.path.isdir(directory):
            self.actions.append(f"make directory {directory}")
            if not self.module.check_mode:
                os.makedirs(directory)
        elif not os.access(directory, os.W_OK):
            self.module.fail_json(
                msg="%s can't be written by this user, who is to serve. Give it back with: sudo chown -R %d:%d %s"
                % (directory, os.getuid(), os.getgid(), directory)
            )

    def write(self):
        """Write what differs."""
        for directory in self.module.params["directories"]:
            self.have(directory)
        wanted = [
            (os.path.join(self.config_path, entry["name"]), entry["content"], int(entry["mode"], 8))
            for entry in self.module.params["files"]
        ]
        wanted += [
            (paths.secret_path(self.config_path, name), value, 0o600, True)
            for name, value in sorted(self.module.params["secrets"].items())
        ]
        for entry in wanted:
            self.write_file(*entry)
        self.remove_strangers({os.path.basename(entry[0]) for entry in wanted})
        self.write_file(
            self.record_path, json.dumps(self.module.params["record"], indent=1, sort_keys=True) + "\n", 0o600
        )
        if self.write_file(self.unit_path, self.module.params["unit"], 0o644) and not self.module.check_mode:
            self.reload()

    def write_file(self, path, content, mode, secret=False):
        before, before_mode = text_files.current(path)
        if (before, before_mode) == (content, mode):
            return False
        self.differences.append(text_files.difference(path, before, content, secret))
        self.actions.append(f"write {path}")
        if not self.module.check_mode:
            text_files.replace(path, content, mode)
        return True

    def remove_strangers(self, names):
        """Remove files of an earlier version of this deployment."""
        present = os.listdir(self.config_path) if os.path.isdir(self.config_path) else []
        for name in sorted(set(present) - names):
            path = os.path.join(self.config_path, name)
            self.actions.append(f"remove {path}")
            if not self.module.check_mode:
                os.unlink(path)

    def reload(self):
        code, out, err = self.systemd.run("daemon-reload")
        if code:
            self.module.fail_json(
                msg=f"The user manager does not answer ({(err or out).strip()}). Is linger on for this user?"
            )

    def enable(self):
        if self.unit().get("UnitFileState") != "enabled":
            self.act(f"enable {self.unit_name}", ["enable", self.unit_name])

    def container_differs(self):
        """Whether the container there was not made from the present files, or there is none."""
        return self.docker("inspect", "--format", LABEL) != self.module.params["fingerprint"]

    def docker(self, verb, *options):
        """Output of a docker command on this deployment's container; null when there is none."""
        path = self.module.get_bin_path("docker")
        if not path:
            return None
        code, out, _err = self.module.run_command([path, verb, *list(options), paths.container_name(self.name)])
        return out.strip() if code == 0 else None

    def stop(self):
        unit = self.unit()
        if unit.get("ActiveState", "inactive") not in ("inactive", "failed"):
            self.act(f"stop {self.unit_name}", ["stop", self.unit_name])
        if self.docker("inspect", "--format", "{{.Id}}") is not None:
            self.actions.append(f"remove container {paths.container_name(self.name)}")
            if not self.module.check_mode:
                self.docker("rm", "--force")

    def remove(self):
        if self.unit().get("UnitFileState") == "enabled":
            self.act(f"disable {self.unit_name}", ["disable", self.unit_name])
        for path in (self.unit_path, self.record_path):
            before = text_files.current(path)[0]
            if before is not None:
                self.differences.append(text_files.difference(path, before, None))
                self.actions.append(f"remove {path}")
                if not self.module.check_mode:
                    os.unlink(path)
        if os.path.isdir(self.config_path):
            self.actions.append(f"remove {self.config_path}")
            if not self.module.check_mode:
                shutil.rmtree(self.config_path)
        if self.actions and not self.module.check_mode and self.systemd.reachable():
            self.reload()
            self.systemd.run("reset-failed", self.unit_name)


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "started", "stopped", "absent"], "default": "present"},
            "unit": {"type": "str"},
            "files": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "content": {"type": "str", "required": True},
                    "mode": {"type": "str", "default": "0600"},
                },
            },
            "secrets": {"type": "dict", "default": {}, "no_log": True},
            "directories": {"type": "list", "elements": "path", "default": []},
            "record": {"type": "dict", "default": {}},
            "fingerprint": {"type": "str", "default": ""},
        },
        required_if=[("state", "present", ["unit"])],
        supports_check_mode=True,
    )
    if not paths.is_deployment_name(module.params["name"]):
        module.fail_json(
            msg="name: {!r} is not made of lower case letters, digits, dots and dashes".format(module.params["name"])
        )
    module.exit_json(**Deployment(module).ensure())


if __name__ == "__main__":
    main()

# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Wait for a real completion on the head; watch the units of all nodes meanwhile. Documented with the module."""

from __future__ import annotations

import json
import os
import time

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.diagnosis import progress

POLL_SECONDS = 3
WATCH_SECONDS = 0.3
HEAD_GRACE_SECONDS = 30
LOG_LINES = 400
SHOWN_LINES = 40
ALIVE = ("active", "activating", "reloading")


class NodeFailed(Exception):
    """The unit of this node died, or time is up; the message says it in a line.

    ``elsewhere`` is set when another node failed and this one only gave up.
    """

    def __init__(self, message, elsewhere=False):
        super().__init__(message)
        self.elsewhere = elsewhere


class Meeting:
    """What the processes that run this action for the nodes of one deployment tell each other, as files.

    They share the directory that Ansible makes on the controller for one run. A head that never comes (too few
    forks, or an earlier failure) is not waited for.
    """

    def __init__(self, task_uuid, nodes):
        self.directory = os.path.join(C.DEFAULT_LOCAL_TMP, f"completion-{nodes[0]}-{task_uuid}")
        os.makedirs(self.directory, exist_ok=True)

    def tell(self, host, word):
        with open(os.path.join(self.directory, host), "w", encoding="utf-8") as stream:
            stream.write(word)

    def told(self, host):
        try:
            with open(os.path.join(self.directory, host), encoding="utf-8") as stream:
                return stream.read()
        except OSError:
            return ""

    def keep(self, host, lines):
        """Keep the log of a node for the diagnosis and return the path; it goes when this run ends."""
        path = os.path.join(self.directory, host + ".log")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write("\n".join(lines))
        return path

    def failed(self, hosts):
        return [host for host in hosts if self.told(host) == "failed"]


class ActionModule(ActionBase):
    """One process of this runs for each node."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _unused, arguments = self.validate_argument_spec(
            {
                "name": {"type": "str", "required": True},
                "nodes": {"type": "list", "elements": "str", "required": True},
                "url": {"type": "str", "required": True},
                "model": {"type": "str", "required": True},
                "prompt": {"type": "str", "required": True},
                "max_tokens": {"type": "int", "default": 64},
                "timeout": {"type": "int", "default": 3600},
            }
        )
        if self._task.check_mode:
            return {"changed": False, "skipped": True, "msg": "Nothing is waited for in check mode."}
        self.arguments, self.task_vars = arguments, task_vars
        self.host = task_vars["inventory_hostname"]
        self.peers = [node for node in arguments["nodes"] if node != self.host]
        self.meeting = Meeting(self._task._uuid, arguments["nodes"])
        self.started = time.monotonic()
        self.log, self.cursor, self.restarts, self.stage = [], None, None, None
        self.meeting.tell(self.host, "waiting")
        try:
            result = self.lead() if self.host == arguments["nodes"][0] else self.follow(arguments["nodes"][0])
        except NodeFailed as failure:
            self.meeting.tell(self.host, "failed")
            if self.log and not failure.elsewhere:
                Display().display(
                    "The last lines of vllm-{}.service on {}:\n{}".format(arguments["name"], self.host, self.tail())
                )
            return {
                "failed": True,
                "msg": str(failure),
                "log_file": self.meeting.keep(self.host, self.log),
                "seconds": self.seconds(),
            }
        self.meeting.tell(self.host, "done")
        return dict(result, changed=False, seconds=self.seconds())

    def seconds(self):
        return round(time.monotonic() - self.started, 1)

    def lead(self):
        """On the head: look at the unit until the port answers, then ask until an answer comes."""
        while True:
            if self.look()["listening"]:
                answer = self.module(
                    "completion",
                    name=self.arguments["name"],
                    url=self.arguments["url"],
                    model=self.arguments["model"],
                    prompt=self.arguments["prompt"],
                    max_tokens=self.arguments["max_tokens"],
                    timeout=max(30, int(self.left())),
                )
                if answer["status"] == 200:
                    return {"response": answer["body"], "answer_seconds": answer["seconds"]}
                if answer["status"] not in (0, 503):
                    raise NodeFailed(
                        "The endpoint %s answered %d: %s"
                        % (self.arguments["url"], answer["status"], json.dumps(answer["body"])[:2000])
                    )
            self.pause(POLL_SECONDS)

    def follow(self, head):
        """On a worker: watch the unit until the head is done."""
        next_look = 0
        while True:
            if time.monotonic() >= next_look:
                self.look()
                next_look = time.monotonic() + POLL_SECONDS
            if self.meeting.told(head) == "done":
                return {}
            if not self.meeting.told(head) and self.seconds() > HEAD_GRACE_SECONDS:
                return {"msg": "The head is not being waited for at the same time; only this unit was looked at."}
            self.pause(WATCH_SECONDS)

    def pause(self, seconds):
        failed = self.meeting.failed(self.peers)
        if failed:
            raise NodeFailed("Gave up here, as {} failed.".format(" and ".join(failed)), elsewhere=True)
        if self.left() <= 0:
            raise NodeFailed(
                "No completion after %d s. Last seen on %s: %s."
                % (self.arguments["timeout"], self.host, self.stage or "nothing")
            )
        time.sleep(seconds)

    def left(self):
        return self.arguments["timeout"] - (time.monotonic() - self.started)

    def look(self):
        """One look at this node's unit: show a new stage, fail when the unit has died since the first look."""
        status = self.module(
            "deployment_status",
            name=self.arguments["name"],
            cursor=self.cursor,
            lines=LOG_LINES,
            url=self.arguments["url"] if self.host == self.arguments["nodes"][0] else None,
        )
        self.log = (self.log + status["log"])[-LOG_LINES:]
        self.cursor = status["cursor"] or self.cursor
        unit = status["unit"]
        restarts = int(unit.get("NRestarts") or 0)
        if self.restarts is None:
            self.restarts = restarts
        if unit.get("ActiveState") not in ALIVE or unit.get("SubState") == "auto-restart" or restarts > self.restarts:
            raise NodeFailed(
                "vllm-{}.service on {} ended ({}, exit status {}).".format(
                    self.arguments["name"],
                    self.host,
                    unit.get("Result") or unit.get("ActiveState", "no such unit"),
                    unit.get("ExecMainStatus", "unknown"),
                )
            )
        self.show(progress(self.log))
        return status

    def show(self, state):
        text = "{}: {}".format(state["stage"], state["detail"]) if state["detail"] else state["stage"]
        if text != self.stage and state["stage"] != "unknown":
            Display().display("%s: %s (%d s)" % (self.host, text, self.seconds()))
            self.stage = text

    def tail(self):
        return "\n".join("  " + line for line in self.log[-SHOWN_LINES:]) or "  (none)"

    def module(self, module, **arguments):
        """Run a module of this collection on this node; a node out of reach is told as a failure."""
        result = self._execute_module(
            module_name="dgx_spark.vllm." + module, module_args=arguments, task_vars=self.task_vars
        )
        if result.get("failed") or result.get("unreachable"):
            raise NodeFailed("{} on {}: {}".format(module, self.host, result.get("msg", result)))
        return result

# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Talk to the systemd of the serving user from a module that runs as that user."""

from __future__ import annotations

import os

from ansible_collections.dgx_spark.vllm.plugins.module_utils.node import parse_unit_properties

UNIT_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,NRestarts,ExecMainStatus,Result,InvocationID,ActiveEnterTimestamp"
)


class UserSystemd:
    """``systemctl --user`` and ``journalctl`` for the user this module runs as."""

    def __init__(self, module):
        self.module = module
        self.environment = {"XDG_RUNTIME_DIR": "/run/user/%d" % os.getuid(), "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}

    def run(self, *words):
        """Run ``systemctl --user WORDS``: exit code, output, errors."""
        return self.module.run_command(["systemctl", "--user", *list(words)], environ_update=self.environment)

    def reachable(self):
        """Whether a manager answers for this user (it does with linger on, or while logged in)."""
        return self.run("show", "--property=Version")[0] == 0

    def units(self, pattern):
        """Properties of the loaded units and unit files that match a pattern; empty when no manager answers.

        A unit that is only spoken of, as in the Conflicts= of another, is loaded too; it has no file and does not run.
        """
        names = set()
        for verb in ("list-units", "list-unit-files"):
            code, out, _err = self.run(verb, "--all", "--plain", "--no-legend", pattern)
            if code == 0:
                names.update(line.split()[0] for line in out.splitlines() if line.strip())
        units = self.show(*sorted(names)) if names else []
        return [unit for unit in units if (unit["LoadState"], unit["ActiveState"]) != ("not-found", "inactive")]

    def show(self, *units):
        """The properties in UNIT_PROPERTIES of each unit."""
        code, out, _err = self.run("show", "--property=" + UNIT_PROPERTIES, *units)
        return parse_unit_properties(out) if code == 0 else []

    def journal(self, unit, lines, cursor=None, invocation=None):
        """Lines a unit logged, oldest first, and the cursor of the last one.

        After a cursor when one is given, else those of one run (invocation) when one is given.
        """
        command = [
            "journalctl",
            "--user",
            "--no-pager",
            "--quiet",
            "--show-cursor",
            "--output=cat",
            "--lines=%d" % lines,
        ]
        if cursor:
            command += ["--unit=" + unit, "--after-cursor=" + cursor]
        elif invocation:
            command += ["_SYSTEMD_INVOCATION_ID=" + invocation]
        else:
            command += ["--unit=" + unit]
        code, out, _err = self.module.run_command(command, environ_update=self.environment, errors="replace")
        log = out.splitlines() if code == 0 else []
        if log and log[-1].startswith("-- cursor: "):
            cursor = log.pop()[len("-- cursor: ") :]
        return log, cursor or ""

# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prints a text as it is: what debug prints is JSON, and a page in JSON is no page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs on the controller alone."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            {"text": {"type": "str", "required": True}, "file": {"type": "path"}}
        )
        text = str(arguments["text"])
        result["changed"] = False
        path = arguments.get("file")
        if not path:
            display.display(text.rstrip("\n"))
            return result
        target = Path(str(path)).expanduser()
        try:
            result["changed"] = not target.is_file() or target.read_text(encoding="utf-8") != text
            if result["changed"] and not self._task.check_mode:
                target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise AnsibleActionFail(f"file: {target} cannot be written: {error.strerror}") from error
        result["file"] = str(target)
        return result

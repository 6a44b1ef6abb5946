# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run a module's main() in this process and catch its result."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args


class Ended(Exception):
    """The module ended with this result."""

    def __init__(self, result):
        super().__init__(result.get("msg"))
        self.result = result


@pytest.fixture
def run_module(monkeypatch, capsys):
    def run(main, check=False, diff=False, **arguments):
        monkeypatch.setattr(basic.AnsibleModule, "exit_json", lambda self, **result: end(result))
        monkeypatch.setattr(basic.AnsibleModule, "fail_json", lambda self, **result: end(dict(result, failed=True)))
        with (
            patch_module_args(dict(arguments, _ansible_check_mode=check, _ansible_diff=diff)),
            pytest.raises(Ended) as ended,
        ):
            main()
        return json.loads(json.dumps(ended.value.result))

    def end(result):
        raise Ended(result)

    return run


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """Stand-ins for commands: a function (words) -> (code, output) by name; all calls are kept."""
    calls, answers = [], {}

    def run_command(self, words, **unused):
        words = [str(word).rsplit("/", 1)[-1] if index == 0 else word for index, word in enumerate(words)]
        calls.append(words)
        code, out = answers.get(words[0], lambda words: (127, ""))(words)
        return code, out, "" if code == 0 else "failed"

    def get_bin_path(self, name, required=False, opt_dirs=None):
        return "/usr/bin/" + name if name in answers else None

    monkeypatch.setattr(basic.AnsibleModule, "run_command", run_command)
    monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", get_bin_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    run_command.calls, run_command.answers = calls, answers
    return run_command

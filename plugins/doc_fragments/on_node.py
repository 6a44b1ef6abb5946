# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations


class ModuleDocFragment:
    """What the modules that run on a node have in common."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Says in check mode what it would change, and changes nothing.
    support: full
  diff_mode:
    description: Shows the content of files before and after.
    support: none
  platform:
    description: Systems that it runs on.
    support: full
    platforms: posix
author:
  - dgx_spark.vllm maintainers (@dgx-spark)
"""

# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Become a command with the deployment's secrets in its environment and as many open files as it may have.

Runs inside the container. Read from files, the secrets stay out of the unit, of argv and of `docker inspect`.
Ray opens a connection for each pair of its processes, and the usual soft limit of 1024 files ends that early.
"""

import os
import resource
import sys

HOME = "/spark"
SUFFIX = ".secret"


def main(command):
    for name in os.listdir(HOME):
        if name.endswith(SUFFIX):
            with open(os.path.join(HOME, name), encoding="utf-8") as stream:
                os.environ[name[: -len(SUFFIX)]] = stream.read()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])

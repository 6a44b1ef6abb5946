# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run a command with the deployment's secrets in its environment.

Runs inside the container. Read from a file, the secrets stay out of the unit, of argv and of `docker inspect`.
"""

import os
import sys

SECRETS = "/spark/secrets.env"


def main(command):
    with open(SECRETS, encoding="utf-8") as stream:
        for line in stream:
            name, equals, value = line.rstrip("\n").partition("=")
            if equals:
                os.environ[name] = value
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])

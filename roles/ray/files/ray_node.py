# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Be the head or a worker of the Ray cluster that joins the nodes of a deployment.

Runs inside the container. The head starts Ray, says which nodes it waits for, and becomes `vllm serve` once all
of them are there. A worker waits for its head and stays until Ray ends; the unit then starts both afresh.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time

POLL_SECONDS = 2
SAY_SECONDS = 10
# A worker that Ray kept this long had joined; when it ends then, the cluster is gone.
JOINED_SECONDS = 90
# The object store is for Ray's own data and vLLM passes none through it; by default it would claim 30 % of memory.
OBJECT_STORE_BYTES = 1_000_000_000


def parse(arguments):
    """Own options, options for `ray start` as they are, and the command to become."""
    separator = arguments.index("--") if "--" in arguments else len(arguments)
    arguments, command = arguments[:separator], arguments[separator + 1 :]
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["head", "worker"])
    parser.add_argument("--address", required=True, help="address of this node on the fabric")
    parser.add_argument("--head", required=True, help="address of the head on the fabric")
    parser.add_argument("--port", type=int, required=True, help="port of the head")
    parser.add_argument("--node", action="append", default=[], help="name=address of each node, the head included")
    parser.add_argument("--timeout", type=int, default=900, help="seconds to wait for the others")
    options, ray_options = parser.parse_known_args(arguments)
    options.ray_options = ray_options
    options.command = command
    options.nodes = dict(node.split("=", 1) for node in options.node)
    return options


def say(text):
    print("[spark] " + text, flush=True)


def wait(missing, what, timeout):
    """Call missing() until it names nothing; say now and then what is still missing. False when time is up."""
    started = said = time.monotonic()
    names = missing()
    if names:
        say("waiting for %s: %s (up to %d s)" % (what, ", ".join(names), timeout))
    while names:
        now = time.monotonic()
        if now - started > timeout:
            say("gave up after %d s waiting for %s: %s" % (timeout, what, ", ".join(names)))
            return False
        if now - said > SAY_SECONDS:
            said = now
            say("still waiting for %s: %s (%d s of %d s)" % (what, ", ".join(names), now - started, timeout))
        time.sleep(POLL_SECONDS)
        names = missing()
    return True


def ray_start(options, *more):
    return [
        "ray",
        "start",
        "--node-ip-address=" + options.address,
        "--num-gpus=1",
        "--disable-usage-stats",
        "--object-store-memory=%d" % OBJECT_STORE_BYTES,
        *options.ray_options,
        *more,
    ]


def head(options):
    """Start Ray, wait for the whole cluster, become the command."""
    subprocess.run(ray_start(options, "--head", "--port=%d" % options.port, "--include-dashboard=false"), check=True)
    address = "%s:%d" % (options.address, options.port)
    import ray

    ray.init(address=address, logging_level="ERROR", log_to_driver=False)

    def missing():
        alive = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        return [f"{name} ({node})" for name, node in options.nodes.items() if node not in alive]

    complete = wait(missing, "nodes to join the Ray cluster", options.timeout)
    ray.shutdown()
    if not complete:
        return 1
    say("Ray cluster complete: %d nodes" % len(options.nodes))
    os.environ["RAY_ADDRESS"] = address
    os.execvp(options.command[0], options.command)


def worker(options):
    """Wait for the head, then stay in its cluster until Ray ends.

    The head's port opens a while before the head has entered itself into its cluster; joining fails until then.
    """

    def missing():
        try:
            socket.create_connection((options.head, options.port), timeout=2).close()
        except OSError as error:
            return ["%s:%d (%s)" % (options.head, options.port, error)]
        return []

    command = ray_start(options, "--address=%s:%d" % (options.head, options.port), "--block")
    end = time.monotonic() + options.timeout
    while wait(missing, "the head", max(0, end - time.monotonic())):
        say(f"joining the Ray cluster of {options.head}")
        started = time.monotonic()
        code = run(command)
        if code <= 0 or time.monotonic() > end or time.monotonic() - started > JOINED_SECONDS:
            return abs(code)
        say("the head is not ready yet, trying again")
    return 1


def run(command):
    """Run a command and hand SIGTERM on to it, as docker stop sends it to this process."""
    process = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number))
    return process.wait()


if __name__ == "__main__":
    OPTIONS = parse(sys.argv[1:])
    sys.exit(head(OPTIONS) if OPTIONS.role == "head" else worker(OPTIONS))

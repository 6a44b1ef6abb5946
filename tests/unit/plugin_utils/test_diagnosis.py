# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How the evidence is weighed: attempts, nodes, time, wrappers, noise, contradictions, progress, streams."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.diagnosis import (
    diagnose,
    lines,
    progress,
    read_response,
)

BANNER = "(APIServer pid=1) INFO 09-01 12:00:00 [utils.py:299]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.26.0"
READY = "(APIServer pid=1) INFO:     Application startup complete."
SERVED = '(APIServer pid=1) INFO:     10.0.0.9:4242 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
WRAPPER = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above."
DEAD = "(APIServer pid=1) vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
LOADING = "Loading safetensors checkpoint shards:  40% Completed | 4/10 [02:00<03:00, 30.00s/it]"


def _error(time: str, text: str) -> str:
    return f"(EngineCore pid=7) ERROR 09-01 {time} [core.py:1330] {text}"


KV = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
DISK = "OSError: [Errno 28] No space left on device"


def _root(result: dict[str, Any]) -> str:
    return result["findings"][0]["id"]


def test_the_first_fault_in_time_over_all_nodes_is_the_root_cause():
    result = diagnose(
        {
            "logs": {
                "head": "\n".join([_error("12:05:10", OOM), WRAPPER]),
                "worker": _error("12:05:02", DISK),
            }
        }
    )
    assert (result["verdict"], _root(result), result["findings"][0]["node"]) == (
        "fault",
        "disk-full",
        "worker",
    )
    assert [finding["level"] for finding in result["findings"]] == ["error", "note"]


def test_a_fault_on_the_worker_is_found_when_the_head_only_complains():
    result = diagnose(
        {
            "logs": {
                "head": "\n".join(
                    [BANNER, _error("12:05:10", "TimeoutError: RPC call to execute_model timed out."), DEAD]
                ),
                "worker": "kernel: Out of memory: Killed process 99 (VLLM::Worker) total-vm:1kB",
            }
        }
    )
    assert (_root(result), result["findings"][0]["node"]) == ("host-oom-kill", "worker")


def test_a_missing_peer_yields_to_what_the_peer_says():
    result = diagnose(
        {
            "logs": {
                "head": "DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined",
                "worker": "/tmp/x/main.c:5:10: fatal error: Python.h: No such file or directory",
            }
        }
    )
    assert _root(result) == "python-headers-missing"


def test_wrappers_alone_leave_it_undecided_and_say_where_to_look():
    result = diagnose({"logs": {"head": "\n".join([BANNER, DEAD, WRAPPER])}})
    assert (result["verdict"], _root(result)) == ("undecided", "cause-not-in-evidence")
    assert "first traceback" in result["findings"][0]["fix"]
    assert all(finding["level"] != "error" for finding in result["findings"])


def test_an_unknown_exception_is_shown_as_it_is():
    result = diagnose(
        {"logs": {"head": "\n".join([_error("12:00:01", "RuntimeError: gremlins in the pipe"), WRAPPER])}}
    )
    assert (result["verdict"], _root(result)) == ("fault", "unrecognised-error")
    assert result["findings"][0]["confidence"] == "low"
    assert "gremlins" in result["findings"][0]["what"]


def test_info_lines_are_never_a_cause():
    text = f"(EngineCore pid=7) INFO 09-01 12:00:01 [x.py:1] the text {OOM} was quoted"
    assert diagnose({"logs": {"head": f"{BANNER}\n{text}"}})["verdict"] == "loading"


def test_a_warning_needs_company():
    warning = f"(EngineCore pid=7) WARNING 09-01 12:00:01 [x.py:1] {OOM}, trying less"
    assert diagnose({"logs": {"head": "\n".join([BANNER, warning, LOADING])}})["verdict"] == "loading"
    assert _root(diagnose({"logs": {"head": "\n".join([BANNER, warning, WRAPPER])}})) == "cuda-out-of-memory"


def test_a_fault_that_the_start_survived_is_no_fault():
    assert diagnose({"logs": {"head": "\n".join([BANNER, _error("12:00:01", OOM), READY, SERVED])}}) == {
        "verdict": "healthy",
        "findings": [],
    }


def test_a_failed_request_of_a_server_that_goes_on_is_no_root_cause():
    result = diagnose({"logs": {"head": "\n".join([BANNER, READY, _error("12:10:00", OOM), SERVED])}})
    assert result["verdict"] == "healthy"
    assert all(finding["level"] != "error" or finding["id"] != "x" for finding in result["findings"])


def test_a_server_that_died_while_serving_is_a_fault():
    result = diagnose({"logs": {"head": "\n".join([BANNER, READY, SERVED, _error("12:10:00", OOM), DEAD])}})
    assert (result["verdict"], _root(result)) == ("fault", "cuda-out-of-memory")


def test_the_last_attempt_counts():
    again = BANNER.replace("12:00:00", "13:00:00")
    first = [BANNER, _error("12:00:01", DISK), WRAPPER]
    assert _root(diagnose({"logs": {"head": "\n".join([*first, again, _error("13:00:09", KV), WRAPPER])}})) == (
        "kv-cache-none"
    )
    assert diagnose({"logs": {"head": "\n".join([*first, again, LOADING, READY, SERVED])}})["verdict"] == "healthy"
    assert _root(diagnose({"logs": {"head": "\n".join([*first, again, LOADING])}})) == "disk-full"


def test_compose_services_are_told_apart():
    text = "\n".join(
        [f"big  | {READY}", f"small  | {_error('12:00:01', KV)}", f"big  | {SERVED}", f"small  | {WRAPPER}"]
    )
    assert _root(diagnose({"logs": {"host": text}})) == "kv-cache-none"


def test_rivals_without_times_leave_it_undecided():
    result = diagnose({"logs": {"head": KV, "worker": DISK}})
    assert (result["verdict"], _root(result)) == ("undecided", "contradictory-nodes")
    assert {finding["id"] for finding in result["findings"][1:]} == {"kv-cache-none", "disk-full"}
    assert all(finding["level"] != "error" for finding in result["findings"])


def test_a_good_answer_contradicts_a_dead_start():
    answer = {"choices": [{"message": {"content": "Four."}, "finish_reason": "stop"}]}
    result = diagnose({"logs": {"head": "\n".join([_error("12:00:01", KV), WRAPPER])}, "response": answer})
    assert (result["verdict"], _root(result)) == ("undecided", "contradictory-run")


def test_a_bad_answer_of_a_healthy_server_is_the_fault():
    answer = {"choices": [{"message": {"content": None, "reasoning": "Rome."}, "finish_reason": "stop"}]}
    result = diagnose({"logs": {"head": "\n".join([BANNER, READY, SERVED])}, "response": answer})
    assert (result["verdict"], _root(result)) == ("fault", "reasoning-on-plain-answer")


def test_no_evidence_is_undecided_with_what_to_collect():
    result = diagnose({})
    assert (result["verdict"], _root(result)) == ("undecided", "nothing-recognised")
    assert "journalctl" in result["findings"][0]["fix"]


def test_a_message_broken_over_two_lines_is_read():
    text = (
        "ValueError: Free memory on device cuda:0 (20.10/121.69 GiB) on startup\n"
        " is less than desired GPU memory utilization (0.85, 103.44 GiB)."
    )
    finding = diagnose({"logs": {"head": text}})["findings"][0]
    assert finding["id"] == "free-memory-at-start"
    assert "20.10 of 121.69 GiB" in finding["what"]


def test_values_of_the_log_are_in_the_fix():
    text = (
        "ValueError: To serve at least one request with the model's max seq len (131072), (24.00 GiB KV "
        "cache is needed, which is larger than the available KV cache memory (10.00 GiB). Based on the "
        "available memory, the estimated maximum model length is 54608."
    )
    assert "`vllm_context` to 54608" in diagnose({"logs": {"head": text}})["findings"][0]["fix"]


def test_docker_json_lines_and_colours_are_unwrapped():
    line = (
        '{"log":"\\u001b[31m(EngineCore pid=7) ERROR 09-01 12:00:01 [core.py:1] [Errno 28] No space left '
        'on device\\n","stream":"stderr","time":"2026-09-01T12:00:01.5Z"}'
    )
    assert _root(diagnose({"logs": {"head": line}})) == "disk-full"


def test_the_version_chooses_the_rules():
    line = "RuntimeError: Every node should have a unique IP address. Got 2 nodes"
    assert _root(diagnose({"logs": {"head": line}, "config": {"vllm": "0.33.0"}})) == "unrecognised-error"
    assert _root(diagnose({"logs": {"head": line}, "config": {"vllm": "0.19.0"}})) == "every-node-unique-ip"


def test_findings_have_the_shape_of_the_contract():
    finding = diagnose({"logs": {"head": _error("12:00:01", KV)}})["findings"][0]
    assert set(finding) == {"id", "level", "confidence", "node", "evidence", "what", "why", "fix", "source"}
    assert finding["confidence"] in ("high", "medium", "low")
    assert finding["evidence"]
    assert all(isinstance(line, str) for line in finding["evidence"])
    assert finding["source"].endswith("(docs/decisions.md#kv-cache-none)")


@pytest.mark.parametrize(
    ("text", "stage", "fraction"),
    [
        (BANNER, "starting", None),
        ("4f4fb700ef54: Downloading [=====>      ]  1.2GB/5.1GB", "pulling", None),
        (
            "INFO 09-01 12:00:00 [ray.py:2] Waiting for creating a placement group of specs for 20 seconds.",
            "cluster",
            None,
        ),
        ("model-00003-of-00010.safetensors:  42%|####      | 2.1G/5.0G", "downloading", 0.42),
        (LOADING, "loading", 0.4),
        (
            "INFO 09-01 12:00:00 [gpu_model_runner.py:1] Profiling CUDA graph memory: PIECEWISE=51",
            "profiling",
            None,
        ),
        (
            "INFO 09-01 12:00:00 [backends.py:1] Compiling a graph for compile range (1, 2048) takes 18.92 s",
            "compiling",
            None,
        ),
        (
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  50%|#####     | 25/50 [00:02<00:02]",
            "capturing",
            0.5,
        ),
        ("WARNING [jit_monitor.py:129] CuTeDSL JIT compilation during inference: FooKernel", "jit", None),
        (f"{LOADING}\n{READY}", "ready", None),
        ("nothing of the kind", "unknown", None),
    ],
)
def test_progress_names_the_stage(text: str, stage: str, fraction: float | None):
    told = progress(text)
    assert (told["stage"], told["fraction"]) == (stage, fraction)
    assert set(told) == {"stage", "detail", "fraction", "seconds_normal"}
    assert "{" not in told["detail"]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("(EngineCore pid=7) INFO 09-01 12:00:01 [core.py:1] x", "info"),
        ("(Worker_TP0 pid=7) ERROR 09-01 12:00:01 [core.py:1] x", "error"),
        ('INFO:     10.0.0.1:1 - "GET / HTTP/1.1" 200 OK', "info"),
        ("node:1:2 [0] NCCL INFO comm", "info"),
        ("node:1:2 [0] NCCL WARN comm", "error"),
        ("[2026-09-01 12:00:01,123 E 5 5] core_worker.cc:496: x", "error"),
        ("level=info ts=2021 msg=x", "info"),
        ("RuntimeError: INFO is not a level here", ""),
        ("Sep 01 12:00:01 node vllm[1]: (APIServer pid=1) WARNING 09-01 12:00:01 [x.py:1] y", "warning"),
    ],
)
def test_levels_are_read_in_all_dialects(line: str, level: str):
    assert lines.level(line) == level


@pytest.mark.parametrize(
    "line",
    [
        "2026-09-01T14:00:01+0200 node vllm[1]: x",
        "Sep  1 12:00:01 node vllm[1]: x",
        "Sep 01 12:00:01 node x",
        "INFO 09-01 12:00:01 [x.py:1] y",
        "[rank0]:[W901 12:00:01.0 ProcessGroupNCCL.cpp:1] y",
        "[Tue Sep  1 12:00:01 2026] oom-kill:",
        "[2026-09-01 12:00:01] node:1:2 [0] NCCL WARN",
        "2026-09-01T12:00:01.0Z y",
        "2026-09-01 12:00:01,000 INFO worker.py:1 -- y",
    ],
)
def test_times_of_all_dialects_are_on_one_clock(line: str):
    assert lines.stamp(line) == lines.stamp("2026-09-01 12:00:01")


def test_a_stream_is_read_with_bounded_memory():
    def endless():
        for number in range(60_000):
            yield f"(EngineCore pid=7) INFO 09-01 12:00:01 [x.py:1] request {number:x} is done"
        yield _error("12:00:02", KV)

    tracemalloc.start()
    result = diagnose({"logs": {"head": endless()}})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert _root(result) == "kv-cache-none"
    assert peak < 40_000_000


def test_read_response_gives_findings_the_telling_one_first():
    body = {"choices": [{"message": {"content": "<think>hm</think>Hello!<|im_end|>"}, "finish_reason": "stop"}]}
    assert [finding.id for finding in read_response(body)] == ["think-leak", "special-token-leak"]
    assert read_response({"choices": [{"message": {"content": "Hello!"}, "finish_reason": "stop"}]}) == []


def test_read_response_knows_the_models_own_ways():
    body = {"choices": [{"message": {"content": "Okay, the user wants four."}, "finish_reason": "stop"}]}
    assert [finding.id for finding in read_response(body, thinking="none")] == []
    assert [finding.id for finding in read_response(body, thinking="on")] == ["think-leak"]


def _node(name: str) -> dict[str, Any]:
    """Facts of a healthy node in the shape of the node_facts module."""
    return {
        "architecture": "aarch64",
        "kernel": "6.17.0-1032-nvidia",
        "boot_id": f"b-{name}",
        "memory": {
            "total_bytes": 130_663_000_000,
            "available_bytes": 31_000_000_000,
            "swap_bytes": 0,
            "cma_total_bytes": 134_217_728,
            "cma_free_bytes": 1_000_000,
        },
        "interfaces": [
            {"name": "lo", "mtu": 65536, "carrier": True, "rdma_devices": []},
            {"name": "enP7s7", "mtu": 1500, "carrier": True, "rdma_devices": []},
            {"name": "enp1s0f0np0", "mtu": 9000, "carrier": True, "rdma_devices": ["rocep1s0f0"]},
            {"name": "enP2p1s0f0np0", "mtu": 9000, "carrier": True, "rdma_devices": ["roceP2p1s0f0"]},
            {"name": "enp1s0f1np1", "mtu": 1500, "carrier": False, "rdma_devices": ["rocep1s0f1"]},
        ],
        "gpus": [{"name": "NVIDIA GB10", "driver": "580.173.02", "compute_capability": "12.1", "memory_mib": None}],
        "docker": {"reachable": True, "images": [{"digest": f"sha256:{name}"}, {"digest": "sha256:b"}]},
        "user": {
            "name": "spark",
            "groups": ["docker", "spark"],
            "manager_groups": ["docker", "spark"],
            "linger": True,
        },
        "units": [{"Id": "vllm-a.service", "ActiveState": "active", "NRestarts": "0", "Result": "success"}],
        "deployments": {
            "a": {
                "plan": {
                    "findings": [{"why": "CUDA out of memory: No space left on device"}],
                    "memory": {"nodes": [{"footprint_bytes": 90_000_000_000}]},
                }
            }
        },
    }


def test_facts_of_healthy_nodes_give_no_finding():
    assert diagnose(
        {"state": {"one": _node("one"), "two": _node("two")}, "logs": {"one": f"{BANNER}\n{READY}\n{SERVED}"}}
    ) == {"verdict": "healthy", "findings": []}


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"user": {"groups": ["docker"], "manager_groups": ["spark"], "linger": True}}, "stale-group"),
        ({"memory": {"cma_total_bytes": 0, "cma_free_bytes": 900_000}}, "kho-kernel-present"),
        ({"units": [{"NRestarts": "35", "ActiveState": "activating"}]}, "restart-loop"),
        ({"user": {"linger": False}}, "linger-off"),
        ({"docker": {"reachable": False}}, "docker-unreachable"),
        (
            {"interfaces": [{"name": "enp1s0f0np0", "mtu": 1500, "carrier": True, "rdma_devices": ["rocep1s0f0"]}]},
            "fabric-mtu-differs",
        ),
        ({"gpus": [{"driver": "580.95.05"}]}, "versions-differ"),
    ],
)
def test_facts_of_a_node_in_trouble_are_told(change: dict[str, Any], finding: str):
    result = diagnose({"state": {"one": {**_node("one"), **change}, "two": _node("two")}})
    assert result["findings"][0]["id"] == finding


def test_a_stream_is_read_as_one_answer():
    events = "\n".join(
        [
            'data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}',
            'data: {"choices":[{"delta":{"content":"<think>hm"},"finish_reason":null}]}',
            'data: {"choices":[{"delta":{"content":"</think>Hi"},"finish_reason":"stop"}]}',
            'data: {"choices":[],"usage":{"completion_tokens":9}}',
            "data: [DONE]",
        ]
    )
    assert [finding.id for finding in read_response(events)] == ["think-leak"]


_KEYS = (
    "choices",
    "message",
    "content",
    "reasoning",
    "tool_calls",
    "function",
    "arguments",
    "usage",
    "error",
    "delta",
    "request",
    "messages",
    "max_tokens",
    "logprobs",
    "detail",
    "interfaces",
    "user",
    "groups",
    "manager_groups",
)
_LEAVES: tuple[Any, ...] = (None, "", 0, -1.5, True, "error", "stop", [], {}, [None], "RuntimeError: x")


def _anything(dice: random.Random, depth: int = 0) -> Any:
    kind = dice.random()
    if depth > 3 or kind < 0.4:
        return dice.choice(_LEAVES)
    if kind < 0.6:
        return [_anything(dice, depth + 1) for _item in range(dice.randint(0, 3))]
    return {dice.choice(_KEYS): _anything(dice, depth + 1) for _item in range(dice.randint(0, 5))}


def test_bodies_and_states_of_any_shape_are_survived():
    dice = random.Random(5)
    for _round in range(600):
        state = {"one": _anything(dice), "two": _anything(dice)}
        result = diagnose({"response": _anything(dice), "state": state, "logs": {"one": None, "two": ["x"]}})
        assert result["verdict"] in ("fault", "healthy", "loading", "undecided")

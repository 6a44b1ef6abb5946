# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What may be asked for, and what is refused by name."""

from __future__ import annotations

from dataclasses import fields

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import InputError
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.wishes import Speculative, Wishes, read_wishes


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("context", 4096, 4096),
        ("context", "4096", 4096),
        ("context", "32K", 32768),
        ("context", "32k", 32000),
        ("context", 4096.0, 4096),
        ("concurrency", "2", 2),
        ("placement", "pipeline", "pipeline"),
        ("launcher", "mp", "mp"),
        ("gpu_memory_utilization", "0.7", 0.7),
        ("gpu_memory_utilization", 1, 1.0),
        ("kv_cache_memory_bytes", "8G", 8 << 30),
        ("reserve_bytes", 0, 0),
        ("prefix_caching", "no", False),
        ("prefix_caching", True, True),
        ("vllm_version", "v0.25.1", "0.25.1"),
        ("vllm_version", "0.32", "0.32.0"),
        ("image", "nvcr.io/nvidia/vllm:26.04-py3", "nvcr.io/nvidia/vllm:26.04-py3"),
        ("extra_args", "--a 'b c'", ("--a", "b c")),
        ("extra_args", ["--a", 3], ("--a", "3")),
        ("extra_env", {"A": 1}, {"A": "1"}),
        ("speculative", {"method": "mtp", "num_tokens": "3"}, Speculative("mtp", 3)),
        ("reasoning_parser", "none", "none"),
        ("context", None, None),
    ],
)
def test_a_wish_is_read(name, given, read):
    assert getattr(read_wishes(**{name: given}), name) == read


@pytest.mark.parametrize(
    ("wishes", "field", "hint"),
    [
        ({"contxt": 1}, "contxt", "context"),
        ({"zzz": 1}, "zzz", "expected one of"),
        ({"context": 0}, "context", "from 1"),
        ({"context": -4096}, "context", "whole number"),
        ({"context": 10**12}, "context", "134217728"),
        ({"context": 1.5}, "context", "whole number"),
        ({"context": float("nan")}, "context", "whole number"),
        ({"context": True}, "context", "True"),
        ({"context": ""}, "context", "whole number"),
        ({"context": [1]}, "context", "whole number"),
        ({"concurrency": "many"}, "concurrency", "whole number"),
        ({"placement": "TP"}, "placement", "single, pipeline, tensor"),
        ({"launcher": "slurm"}, "launcher", "ray, mp"),
        ({"gpu_memory_utilization": 85}, "gpu_memory_utilization", "0.85"),
        ({"gpu_memory_utilization": 0}, "gpu_memory_utilization", "above 0"),
        ({"gpu_memory_utilization": "a lot"}, "gpu_memory_utilization", "share"),
        ({"kv_cache_memory_bytes": -1}, "kv_cache_memory_bytes", "bytes"),
        ({"reserve_bytes": -1}, "reserve_bytes", "bytes"),
        ({"max_num_seqs": 0}, "max_num_seqs", "requests"),
        ({"prefix_caching": "maybe"}, "prefix_caching", "true or false"),
        ({"vllm_version": "latest"}, "vllm_version", "0.25.1"),
        ({"vllm_version": 0.3}, "vllm_version", "string"),
        ({"image": "has blanks"}, "image", "image reference"),
        ({"speculative": "mtp"}, "speculative", "mapping"),
        ({"speculative": {"method": "mtp"}}, "speculative", "num_tokens"),
        ({"speculative": {"method": "mtp", "num_tokens": 0}}, "speculative.num_tokens", "from 1"),
        ({"speculative": {"method": "mtp", "num_tokens": 1, "draft": 1}}, "speculative", "draft"),
        ({"extra_args": 5}, "extra_args", "list"),
        ({"extra_args": "'open"}, "extra_args", "shell"),
        ({"extra_args": [{"a": 1}]}, "extra_args", "strings"),
        ({"extra_env": ["A=1"]}, "extra_env", "mapping"),
        ({"extra_env": {"A B": 1}}, "extra_env", "names"),
        ({"extra_env": {"A": None}}, "extra_env", "string or a number"),
        ({"api_port": 70000}, "api_port", "65535"),
        ({"concurrency": 8, "max_num_seqs": 4}, "max_num_seqs", "at least the asked concurrency 8"),
        ({"max_num_seqs": 64, "max_num_batched_tokens": 32}, "max_num_batched_tokens", "at least 64"),
        ({"placement": "single", "launcher": "ray"}, "launcher", "ray joins nodes"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused_by_name(wishes, field, hint):
    with pytest.raises(InputError) as caught:
        read_wishes(**wishes)
    assert caught.value.field == field
    assert hint in caught.value.message


def test_every_wish_can_be_asked():
    for field in fields(Wishes):
        with pytest.raises(InputError) as caught:
            read_wishes(**{field.name: object()})
        assert "no such wish" not in caught.value.message


def test_nothing_asked_is_nothing_decided():
    assert read_wishes() == Wishes()

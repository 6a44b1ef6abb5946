"""The platform: a resource for Ray, and the same instructions on every machine.

With AVX-512, vLLM's CPU build joins the ranks of a group by shared memory, as if all were on one machine. The
AVX2 build uses torch.distributed, as between GPUs, and runs on every x86-64 machine alike: so AVX-512 and AMX
are hidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from vllm.platforms.cpu import CpuPlatform

if TYPE_CHECKING:
    # vLLM's configuration imports the platform.
    from vllm.config import VllmConfig


def _absent() -> bool:
    return False


for _feature in ("avx512", "avx512_bf16", "amx_tile", "amx_fp16"):
    setattr(torch.cpu, f"_is_{_feature}_supported", _absent)


class SimulatedGpuPlatform(CpuPlatform):
    # Ray places vLLM's workers by this resource: `ray start --num-gpus 1` stands for the node's GPU.
    ray_device_key = "GPU"

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        super().check_and_update_config(vllm_config)
        vllm_config.parallel_config.worker_cls = "simulated_gpu.worker.SimulatedGpuWorker"

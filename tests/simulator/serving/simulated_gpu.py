"""A vLLM plugin: Ray places vLLM's workers by a resource, and vLLM's CPU platform names none.

With it, ``ray start --num-gpus 1`` on each node stands for the node's GPU.
"""


def register() -> None:
    from vllm.platforms.cpu import CpuPlatform

    CpuPlatform.ray_device_key = "GPU"

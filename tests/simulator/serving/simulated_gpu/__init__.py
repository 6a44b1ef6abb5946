"""A vLLM platform plugin: the CPU platform, made fit for nodes that stand for machines with a GPU each."""


def platform() -> str:
    """What the entry point calls; vLLM's own modules can't be imported yet."""
    return "simulated_gpu.platform.SimulatedGpuPlatform"

"""The worker: it profiles the model at start also when nothing is compiled, as the worker for GPUs does.

The first profiling run makes the buffers that a later pipeline stage receives into; vLLM's CPU worker leaves
it out with --enforce-eager, and then the first request fails.
"""

from __future__ import annotations

from vllm.config import CompilationMode
from vllm.v1.worker.cpu_worker import CPUWorker


class SimulatedGpuWorker(CPUWorker):
    def determine_available_memory(self) -> int:
        if self.compilation_config.mode == CompilationMode.NONE:
            self.model_runner.profile_run()
        return super().determine_available_memory()

# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether and how a checkpoint lies on nodes, with every flag, and why."""

from __future__ import annotations

DOCUMENTATION = r"""
name: plan
short_description: Plan how a checkpoint is served on DGX Sparks
version_added: 0.1.0
description:
  - Works out from a checkpoint's facts and the nodes' memory whether the model fits and how it lies on
    them, what vLLM is started with and why, and how fast it will decode.
  - Pure arithmetic on the controller. It asks no node, opens no file and imports neither torch nor vLLM.
  - Weights, KV cache and concurrency follow vLLM's own rules for the version of the image; speed is a range
    from published measurements. What is not known is said to be unknown, in a finding.
  - A plan that does not fit comes back whole, with RV(_value.fits=false) and the findings that say why
    and what would make it fit.
positional: _input, nodes
options:
  _input:
    description:
      - The checkpoint, as M(dgx_spark.vllm.checkpoint_facts) returns it.
      - C(id), the repository or path, and C(config), config.json as a dict, are needed.
      - C(weight_bytes), C(quant_config), C(tokenizer_config), C(chat_template), C(files), C(tensors) and
        C(parser_files) make the plan better where they are known.
    type: dict
    required: true
  nodes:
    description:
      - The nodes that may be used, the head first, as names or as dicts with C(name),
        C(memory_total_bytes), C(memory_available_bytes), C(bandwidth_gb_s) (10^9 bytes a second),
        C(fabric_address), C(fabric_interface) and C(rdma_devices).
      - Figures that are missing are those of a GB10, 121.69 GiB and 273 GB/s.
    type: list
    elements: raw
    required: true
  context:
    description:
      - Longest request in tokens (C(--max-model-len)). Not beyond what the model was trained for.
      - Default is 32768, or the model's own length where that is shorter.
    type: int
  concurrency:
    description:
      - Requests of full length that must fit at once. Default is one, which vLLM needs to start at all.
    type: int
  placement:
    description:
      - V(single) takes one node, V(pipeline) cuts the layers over all nodes, V(tensor) cuts every layer.
      - Default is one node if the model fits, else a pipeline over as few nodes as fit. V(tensor) is never
        chosen unasked.
    type: str
    choices: [single, pipeline, tensor]
  launcher:
    description:
      - What joins several nodes, a Ray cluster (V(ray), the default) or vLLM's own C(--nnodes) (V(mp)).
    type: str
    choices: [ray, mp]
  gpu_memory_utilization:
    description:
      - Share of a node's memory that vLLM may take, weights and cache together.
      - Default is 0.85 on one node. On several it is what keeps a node's footprint at 90 GiB, up to 95
        with a warning; giving a value here lifts that ceiling.
    type: float
  reserve_bytes:
    description:
      - Memory of a node to leave alone, in bytes. Lifts the ceiling as O(gpu_memory_utilization) does.
    type: int
  footprint_limit_bytes:
    description: The most a node may hold, in bytes, instead of the ceiling of 90 to 95 GiB.
    type: int
  kv_cache_memory_bytes:
    description: Size of the KV cache on each node in bytes, as vLLM's flag of that name.
    type: int
  kv_cache_dtype:
    description: Type of the KV cache as vLLM names it. C(auto) is the type the model runs in.
    type: str
  image:
    description: Serving image. Default is the one that the architecture and quantization need.
    type: str
  vllm_version:
    description: vLLM's version in O(image), as a string. Default is read from the image's tag.
    type: str
  max_num_batched_tokens:
    description: Tokens of one step, which sets the memory of activations.
    type: int
  max_num_seqs:
    description: Requests that may run at once. Default is 4, or O(concurrency) if that is more.
    type: int
  prefix_caching:
    description: Whether requests share the cache of a common beginning. Default is vLLM's.
    type: bool
  speculative:
    description: Speculative decoding, with C(method), C(num_tokens), C(draft_weight_bytes) and C(model).
    type: dict
  reasoning_parser:
    description: Name of the reasoning parser, or C(none). Default follows the model.
    type: str
  tool_call_parser:
    description: Name of the tool parser, or C(none). Default follows the model.
    type: str
  extra_args:
    description: Arguments to add to the command line, as a list or one quoted line.
    type: raw
  extra_env:
    description: Environment variables to add.
    type: dict
  served_model_name:
    description: Name of the model in the API.
    type: str
  api_port:
    description: Port of the API.
    type: int
  trust_remote_code:
    description: Whether code of the repository may run. Default is only where vLLM cannot do without.
    type: bool
author:
  - dgx_spark.vllm maintainers (@dgx-spark-vllm)
"""

EXAMPLES = r"""
- name: Read a checkpoint
  dgx_spark.vllm.checkpoint_facts:
    model: Qwen/Qwen3-235B-A22B-GPTQ-Int4
  register: checkpoint

- name: Does it fit on two Sparks, and how?
  dgx_spark.vllm.show:
    text: "{{ checkpoint.model | dgx_spark.vllm.plan(['spark1', 'spark2']) | dgx_spark.vllm.plan_page }}"

- name: Tensor parallel over a proven fabric, with a longer context
  ansible.builtin.set_fact:
    plan: >-
      {{ checkpoint.model | dgx_spark.vllm.plan(nodes, placement='tensor', context=65536,
      kv_cache_dtype='fp8') }}

- name: Stop before anything is downloaded
  ansible.builtin.assert:
    that: plan.fits
    fail_msg: "{{ plan.findings | selectattr('level', 'eq', 'error') | map(attribute='what') | join(' ') }}"
"""

RETURN = r"""
_value:
  description:
    - The plan, a plain dict that can be written as JSON. Every key is always there. Sizes are bytes.
    - Bad input raises an error that begins with the name of the field, such as C(plan), C(context) and
      what was expected.
  type: dict
  contains:
    fits:
      description: Whether it fits and will run.
      type: bool
    placement:
      description:
        - C(kind), C(nodes) (names, the head first), C(pipeline_parallel_size), C(tensor_parallel_size),
          C(launcher) and the C(reason).
      type: dict
    model:
      description:
        - C(architecture), C(family), C(sparsity) (dense or moe), C(attention) (kinds), C(parameters) (the
          text model without layers of multi-token prediction), C(active_parameters), C(native_context),
          C(quantization), C(bits_per_weight) (scales included), C(thinking) (none, on, off, always,
          adaptive), C(remote_code), C(multimodal) and C(id).
      type: dict
    memory:
      description:
        - C(kv_bytes_per_token), what one more token takes in the layers whose cache grows, all nodes
          together.
        - C(context), C(concurrency) (requests of that length that fit, as vLLM prints it), C(kv_tokens),
          C(largest_context) (the longest that fits with these nodes) and C(gpu_memory_utilization).
        - C(nodes), each with C(name), C(layers) as [first, last + 1], C(weight_bytes), C(kv_bytes) and
          C(state_bytes) for the asked context and concurrency, C(overhead_bytes), C(footprint_bytes)
          (their sum), C(headroom_bytes) (to the limit; negative where it does not fit) and
          C(memory_total_bytes).
      type: dict
    serve:
      description:
        - C(image), C(vllm_version), C(args) for C(vllm serve MODEL), C(node_args) by node, C(env) with
          C(common) and C(nodes), C(layers_added_to_image), C(reasons) by flag.
      type: dict
    speed:
      description:
        - C(decode_tokens_per_second) of one request with C(low), C(expected) and C(high),
          C(roofline_tokens_per_second), C(bytes_per_token), C(bound_by), and C(depth_tokens), the
          length of the conversation they hold for; C(at_full_context) is the range at the planned context.
      type: dict
    findings:
      description:
        - What one should know, errors first. Each has C(level) (error, warning, note), C(id), C(what),
          C(why), C(fix) and C(source).
      type: list
      elements: dict
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from ..plugin_utils.checkpoint import InputError
from ..plugin_utils.plain import plain
from ..plugin_utils.plan import make_plan


def plan(model: Any, nodes: Any, **wishes: Any) -> dict[str, Any]:
    """The plan for ``model`` on ``nodes``."""
    try:
        return make_plan(plain(model), plain(nodes), **plain(wishes))
    except InputError as error:
        raise AnsibleFilterError(f"plan: {error}") from error


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"plan": plan}

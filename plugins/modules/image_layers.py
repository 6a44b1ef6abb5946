#!/usr/bin/python
# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: image_layers
short_description: Have an image with the Python packages that a plan asks for
version_added: 0.1.0
description:
  - An image that has the packages already only gets a second name.
  - Otherwise a small image is built on top of it with C(docker build), labelled with what it was made from.
  - The name of the result follows from the image's id and the packages, so the work is done once, and again when
    a tag has moved on.
options:
  image:
    description: The image to start from, which must be on the node.
    type: str
    required: true
  layers:
    description: Packages as C(name) or C(name==version).
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - dgx_spark.vllm.on_node
"""

EXAMPLES = r"""
- name: Add Ray
  dgx_spark.vllm.image_layers:
    image: vllm/vllm-openai:v0.32.0
    layers: [ray==2.56.1]
  register: serving
"""

RETURN = r"""
image:
  description: The image to run.
  returned: always
  type: str
  sample: dgx-spark-vllm:vllm-openai-v0.32.0-ray2.56.1-5d1f0c2a
built:
  description: Whether layers were added, or the image had the packages already.
  returned: when changed and not in check mode
  type: bool
"""

import hashlib
import re

from ansible.module_utils.basic import AnsibleModule

DOCKERFILE = """FROM {image}
LABEL dgx-spark.base="{image}" dgx-spark.layers="{layers}"
USER root
RUN if command -v uv >/dev/null; then uv pip install --system {words}; \\
    else python3 -m pip install --no-cache-dir {words}; fi
"""
PROBE = "import importlib.metadata as m, sys; [m.version(name) for name in sys.argv[1:]]"


def target(image, image_id, layers):
    """The name of the image with the layers: readable, and different for every image and set of layers."""
    readable = "-".join(
        [image.rpartition("/")[2].replace(":", "-").partition("@")[0]] + [layer.replace("==", "") for layer in layers]
    )
    digest = hashlib.sha256(" ".join([image_id, *layers]).encode()).hexdigest()[:8]
    return "dgx-spark-vllm:{}-{}".format(re.sub(r"[^A-Za-z0-9_.-]+", "-", readable)[:110], digest)


def main():
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "layers": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    image, layers = module.params["image"], sorted(module.params["layers"])
    docker = module.get_bin_path("docker", required=not module.check_mode)

    def run(*words, **options):
        return module.run_command([docker, *list(words)], **options)

    code, image_id, err = run("image", "inspect", "--format", "{{.Id}}", image) if docker else (1, "", "")
    if code and not module.check_mode:
        module.fail_json(msg="There is no image {} on this node to add {} to.".format(image, ", ".join(layers)))
    name = target(image, image_id.strip(), layers)
    if code == 0 and run("image", "inspect", name)[0] == 0:
        module.exit_json(changed=False, image=name)
    if module.check_mode:
        module.exit_json(changed=True, image=name)
    packages = [re.split("[=<>!~]", layer)[0] for layer in layers]
    has_all = run("run", "--rm", "--network", "none", "--entrypoint", "python3", image, "-c", PROBE, *packages)[0] == 0
    if has_all:
        code, out, err = run("tag", image, name)
    else:
        text = DOCKERFILE.format(image=image, layers=" ".join(layers), words=" ".join(f"'{layer}'" for layer in layers))
        code, out, err = run("build", "--tag", name, "-", data=text)
    if code:
        module.fail_json(
            msg="Adding {} to {} failed: {}".format(", ".join(layers), image, (err or out).strip()[-2000:])
        )
    module.exit_json(changed=True, image=name, built=not has_all)


if __name__ == "__main__":
    main()

# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Start a real vLLM on a tiny checkpoint, without weights or tokenizer; its log says what the KV cache holds.

Run by the Python of a vLLM environment: ``boot.py FOLDER JSON``, where FOLDER holds a config.json and JSON
the arguments of ``vllm.LLM``. The caller reads the log and ends the process when it has seen enough.
"""

import json
import sys

from vllm import LLM

if __name__ == "__main__":
    LLM(
        model=sys.argv[1],
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        **json.loads(sys.argv[2]),
    )

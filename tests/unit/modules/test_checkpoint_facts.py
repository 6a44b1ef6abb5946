# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""checkpoint_facts against a small hub on the loopback, directories and a cache."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import checkpoint_files, huggingface
from ansible_collections.dgx_spark.vllm.plugins.modules.checkpoint_facts import CheckpointFacts

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secretsecret"
CONFIG = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_hidden_layers": 2}


def safetensors(tensors: dict[str, int]) -> bytes:
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, size in tensors.items():
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [offset, offset + size]}
        offset += size
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + b"\0" * offset


FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "tokenizer_config.json": json.dumps({"chat_template": "old {{ messages }}"}).encode(),
    "chat_template.jinja": b"new {{ messages }}",
    "hf_quant_config.json": json.dumps({"quantization": {"quant_algo": "NVFP4"}}).encode(),
    "nano_parser.py": b'@ReasoningParserManager.register_module("nano_v9")\nclass P: ...\n',
    "model-00001-of-00002.safetensors": safetensors(
        {
            "model.embed_tokens.weight": 64,
            "model.layers.0.mlp.experts.0.up_proj.weight": 10,
            "model.layers.0.mlp.experts.1.up_proj.weight": 10,
        }
    ),
    "model-00002-of-00002.safetensors": safetensors({f"model.layers.1.long.{'x' * 900}.{i}": 2 for i in range(200)}),
    "consolidated.safetensors": safetensors({"whole": 512}),
    "original/model.safetensors": safetensors({"again": 512}),
    "README.md": b"hello",
}


class Requests:
    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.bytes_sent = 0
        self.needs_token = False
        self.ranges = True
        self.storage = ""
        self.told = "size"

    def size(self, body: bytes) -> dict[str, Any]:
        return {"size": {"size": len(body)}, "lfs": {"lfs": {"size": len(body)}}}.get(self.told, {})


class Handler(BaseHTTPRequestHandler):
    log: Requests

    def log_message(self, *args: Any) -> None:
        pass

    def answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.log.bytes_sent += len(body)
        self.wfile.write(body)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.log.seen.append((url.path, dict(self.headers)))
        if url.path.startswith("/blob/"):
            self.file(unquote(url.path.split("/", 2)[2]))
            return
        if "/missing" in url.path:
            self.answer(404, X_Error_Code="RepoNotFound")
        elif "/private" in url.path:
            self.answer(401, X_Error_Code="RepoNotFound")
        elif "/gated" in url.path and self.headers.get("Authorization") != "Bearer " + TOKEN:
            self.answer(403 if self.headers.get("Authorization") else 401, X_Error_Code="GatedRepo")
        elif "/broken" in url.path:
            self.answer(503)
        elif "/notahub" in url.path:
            self.answer(200, b"<html>welcome</html>")
        elif url.path.startswith("/api/models/"):
            if unquote(url.path.rsplit("/", 1)[1]) not in ("main", "refs/pr/1", COMMIT):
                self.answer(404, X_Error_Code="RevisionNotFound")
                return
            siblings = [{"rfilename": name, **self.log.size(body)} for name, body in FILES.items()]
            card = {"license": "apache-2.0"}
            body = {"sha": COMMIT, "siblings": siblings, "author": "org", "gated": False, "cardData": card}
            self.answer(200, json.dumps(body).encode())
        else:
            name = unquote(url.path.split(f"/resolve/{COMMIT}/", 1)[1])
            if name.endswith(".safetensors") and self.log.storage:
                self.answer(302, Location=f"{self.log.storage}/blob/{name}")
            else:
                self.file(name)

    def file(self, name: str) -> None:
        body = FILES[name]
        asked = self.headers.get("Range")
        if asked and self.log.ranges:
            first, last = asked.removeprefix("bytes=").split("-")
            self.answer(206, body[int(first) : int(last) + 1])
        else:
            self.answer(200, body)


@pytest.fixture
def hub() -> Iterator[tuple[str, Requests]]:
    log = Requests()
    handler = type("BoundHandler", (Handler,), {"log": log})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", log
    server.shutdown()
    server.server_close()


@pytest.fixture
def facts(tmp_path: Path) -> Any:
    def run(model: str, environ: dict[str, str] | None = None, **params: Any) -> dict[str, Any]:
        wanted = {
            "model": model,
            "revision": "main",
            "source": "auto",
            "endpoint": None,
            "cache": None,
            "token_file": None,
            "token": None,
            "tensors": True,
            "timeout": 5,
            **params,
        }
        module = CheckpointFacts(wanted, {"HF_HOME": str(tmp_path / "home"), **(environ or {})})
        result = module.run()
        json.dumps(result)
        return {**result, "warnings": module.warnings}

    return run


def write(folder: Path, files: dict[str, bytes] | None = None) -> Path:
    for name, body in (files or FILES).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return folder


def check_model(model: dict[str, Any]) -> None:
    assert model["config"] == CONFIG
    assert model["quant_config"]["quantization"]["quant_algo"] == "NVFP4"
    assert model["chat_template"] == "new {{ messages }}"
    assert model["tokenizer_config"] == {"chat_template": "old {{ messages }}"}
    assert model["files"] == sorted(FILES)
    assert list(model["parser_files"]) == ["nano_parser.py"]
    shards = [name for name in FILES if name.startswith("model-")]
    assert model["weight_bytes"] == sum(len(FILES[name]) for name in shards), "not the second copies"
    assert model["tensors"]["model.layers.0.mlp.experts.*.up_proj.weight"] == 20
    assert sum(model["tensors"].values()) == 64 + 20 + 400


def test_hub(hub: tuple[str, Requests], facts: Any) -> None:
    address, log = hub
    result = facts("org/name", {"HF_ENDPOINT": address + "/"})
    check_model(result["model"])
    assert result["revision"] == COMMIT
    assert result["source"] == "hub"
    assert result["changed"] is False
    assert result["card"]["license"] == "apache-2.0"
    asked = [path for path, _headers in log.seen]
    assert sum("/api/" in path for path in asked) == 1, "the revision is resolved once"
    assert all(f"/resolve/{COMMIT}/" in path for path in asked if "/api/" not in path)
    assert not any(path.endswith("consolidated.safetensors") for path in asked)


def test_headers_of_large_files_only(hub: tuple[str, Requests], facts: Any, monkeypatch: Any) -> None:
    address, log = hub
    large = "model-00001-of-00002.safetensors"
    monkeypatch.setitem(FILES, large, FILES[large] + b"\0" * (32 << 20))
    for ranges in (True, False):
        log.ranges, log.bytes_sent = ranges, 0
        result = facts("org/name", endpoint=address)
        assert sum(result["model"]["tensors"].values()) == 64 + 20 + 400
        if ranges:
            assert log.bytes_sent < 1 << 20, "the weights stay where they are"


def test_header_longer_than_the_first_read(hub: tuple[str, Requests], facts: Any) -> None:
    raw = FILES["model-00002-of-00002.safetensors"]
    assert struct.unpack("<Q", raw[:8])[0] > checkpoint_files.FIRST_READ_BYTES
    assert len([n for n in facts("org/name", endpoint=hub[0])["model"]["tensors"] if ".long." in n]) == 200


def test_tensors_can_be_left_out(hub: tuple[str, Requests], facts: Any) -> None:
    model = facts("org/name", endpoint=hub[0], tensors=False)["model"]
    assert "tensors" not in model
    assert model["weight_bytes"]


def test_named_revision_with_a_slash(hub: tuple[str, Requests], facts: Any) -> None:
    assert facts("org/name", endpoint=hub[0], revision="refs/pr/1")["revision"] == COMMIT


@pytest.mark.parametrize(
    ("model", "params", "words"),
    [
        ("org/missing", {}, ["no repository org/missing", "404"]),
        ("org/name", {"revision": "v9"}, ["no revision 'v9'", "404"]),
        ("org/private", {}, ["private, gated or does not exist", "HF_TOKEN"]),
        ("org/private", {"token": TOKEN}, ["refused the token", "401"]),
        ("org/gated", {}, ["gated", "No token was given", "accept its terms"]),
        ("org/gated", {"token": "wrong"}, ["gated", "has no access"]),
        ("org/broken", {}, ["503", "try again later"]),
        ("org/notahub", {}, ["HF_ENDPOINT"]),
        ("not a repo", {}, ["owner/name"]),
        ("/no/such/place", {}, ["owner/name"]),
        ("org/name", {"source": "cache"}, ["not in the cache"]),
        ("org/name", {"token_file": "/no/token"}, ["token_file /no/token cannot be read"]),
    ],
)
def test_refusals(hub: tuple[str, Requests], facts: Any, model: str, params: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((huggingface.HubError, checkpoint_files.CheckpointError)) as caught:
        facts(model, endpoint=hub[0], **params)
    for word in words:
        assert word in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_no_hub_at_all(facts: Any) -> None:
    with pytest.raises(huggingface.HubUnreachable, match="cannot be reached"):
        facts("org/name", endpoint="http://127.0.0.1:9")


def test_offline_by_variable(facts: Any) -> None:
    with pytest.raises(checkpoint_files.CheckpointError, match="HF_HUB_OFFLINE"):
        facts("org/name", {"HF_HUB_OFFLINE": "1"}, endpoint="http://127.0.0.1:9")


@pytest.mark.parametrize("way", ["token", "token_file", "HF_TOKEN", "login"])
def test_token(hub: tuple[str, Requests], facts: Any, tmp_path: Path, way: str) -> None:
    environ, params = {}, {}
    if way == "token":
        params["token"] = TOKEN
    elif way == "token_file":
        (tmp_path / "secret").write_text(TOKEN + "\n")
        params["token_file"] = str(tmp_path / "secret")
    elif way == "HF_TOKEN":
        environ["HF_TOKEN"] = TOKEN
    else:
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "token").write_text(TOKEN)
    result = facts("org/gated", environ, endpoint=hub[0], **params)
    check_model(result["model"])
    assert TOKEN not in json.dumps(result)


@pytest.mark.parametrize("told", ["lfs", "nothing"])
def test_mirrors_that_tell_sizes_otherwise(hub: tuple[str, Requests], facts: Any, told: str) -> None:
    address, log = hub
    log.told = told
    model = facts("org/name", endpoint=address)["model"]
    assert sum(model["tensors"].values()) == 484
    shards = sum(len(FILES[name]) for name in FILES if name.startswith("model-"))
    assert model["weight_bytes"] == (shards if told == "lfs" else 484)


def test_token_stays_with_the_hub(hub: tuple[str, Requests], facts: Any) -> None:
    """Storage is another host: the redirect goes there without the token, and with the range."""
    address, log = hub
    log.storage = address.replace("127.0.0.1", "localhost")
    check_model(facts("org/gated", endpoint=address, token=TOKEN)["model"])
    blobs = [headers for path, headers in log.seen if path.startswith("/blob/")]
    assert blobs
    assert all("Authorization" not in headers and "Range" in headers for headers in blobs)
    assert all(headers.get("Authorization") for path, headers in log.seen if not path.startswith("/blob/"))


def test_directory(facts: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    for given in (folder, folder / "config.json"):
        result = facts(str(given))
        assert result["source"] == "directory"
        assert result["path"] == str(folder)
        assert result["revision"] == ""
        check_model(result["model"])


def test_config_file_alone(facts: Any, tmp_path: Path) -> None:
    path = tmp_path / "qwen.json"
    path.write_bytes(FILES["config.json"])
    result = facts(str(path))
    assert result["source"] == "file"
    assert result["model"] == {"id": str(path), "config": CONFIG, "files": ["config.json"]}


def cached(home: Path, files: dict[str, bytes]) -> Path:
    root = home / "home" / "hub" / "models--org--name"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    return write(root / "snapshots" / COMMIT, files)


def test_cache(facts: Any, tmp_path: Path) -> None:
    folder = cached(tmp_path, FILES)
    for params in ({"source": "cache"}, {"revision": COMMIT}):
        result = facts("org/name", endpoint="http://127.0.0.1:9", **params)
        assert (result["source"], result["path"], result["revision"]) == ("cache", str(folder), COMMIT)
        check_model(result["model"])


def test_cache_when_the_hub_is_away(facts: Any, tmp_path: Path) -> None:
    cached(tmp_path, FILES)
    result = facts("org/name", endpoint="http://127.0.0.1:9")
    assert result["source"] == "cache"
    assert "cannot be reached" in result["warnings"][0]


def test_cache_without_weights_still_plans(facts: Any, tmp_path: Path) -> None:
    """A download under way has links to nothing: no weight_bytes, rather than too small a sum."""
    small = {name: body for name, body in FILES.items() if not name.endswith(".safetensors")}
    folder = cached(tmp_path, small)
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model-00001-of-00002.safetensors").write_bytes(FILES["model-00001-of-00002.safetensors"])
    (folder / "model-00002-of-00002.safetensors").symlink_to(tmp_path / "nowhere")
    model = facts("org/name", source="cache")["model"]
    assert "weight_bytes" not in model
    assert model["config"] == CONFIG


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"config.json": b""}, "config.json is empty"),
        ({"config.json": b"{nope"}, "config.json is not JSON"),
        ({"config.json": b"[1]"}, "an object was expected"),
        ({"params.json": b"{}"}, "params.json"),
        ({"config.json": b"{}", "model.safetensors": b"abc"}, "model.safetensors is not a safetensors file"),
        ({"config.json": b"{}", "model.safetensors": b"\xff" * 64}, "its header claims"),
        (
            {"config.json": b"{}", "model.safetensors": struct.pack("<Q", 4) + b"nope"},
            "its header is not JSON",
        ),
    ],
)
def test_broken_checkpoints(facts: Any, tmp_path: Path, files: dict[str, bytes], words: str) -> None:
    with pytest.raises(checkpoint_files.CheckpointError, match=words.replace(".", r"\.")):
        facts(str(write(tmp_path / "model", files)))


@pytest.mark.parametrize(
    ("names", "index", "expected"),
    [
        (["model.safetensors", "consolidated.safetensors"], None, ["model.safetensors"]),
        (["consolidated.safetensors"], None, ["consolidated.safetensors"]),
        (["a.safetensors", "b.safetensors"], {"weight_map": {"x": "a.safetensors"}}, ["a.safetensors"]),
        (["pytorch_model.bin", "training_args.bin", "x/y.bin"], None, ["pytorch_model.bin"]),
        (["metal/model.safetensors"], None, []),
    ],
)
def test_weight_files(names: list[str], index: dict[str, Any] | None, expected: list[str]) -> None:
    assert checkpoint_files.weight_files(dict.fromkeys(names, 1), index) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", "plain"),
        ([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}], "d"),
        ([{"name": "tool_use", "template": "t"}], "t"),
        (None, None),
        ([], None),
    ],
)
def test_chat_template_of_the_tokenizer(tmp_path: Path, value: Any, expected: str | None) -> None:
    source = checkpoint_files.Folder(str(tmp_path))
    assert checkpoint_files.chat_template(source, {"chat_template": value}) == expected

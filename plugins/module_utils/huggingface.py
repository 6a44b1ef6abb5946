# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reading a repository of the Hugging Face hub, or its copy in the local cache, without its weights.

Standard library only and Python 3.8, because modules run on nodes.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

DEFAULT_ENDPOINT = "https://huggingface.co"
REPO_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
COMMIT = re.compile(r"^[0-9a-f]{40}$")


class HubError(Exception):
    """The hub did not give what was asked; the message says why and what to do. It never holds a token."""


class HubUnreachable(HubError):
    """No answer at all: no network, a wrong endpoint, a time-out or a server in trouble."""


def endpoint_from(environ: dict[str, str], given: str | None = None) -> str:
    """The hub's address without a trailing slash: given, else ``HF_ENDPOINT``, else the public one."""
    return (given or environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")


def home_from(environ: dict[str, str]) -> str:
    """``HF_HOME``, or where huggingface_hub puts it."""
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.expanduser(environ.get("HF_HOME") or os.path.join(cache, "huggingface"))


def cache_from(environ: dict[str, str], given: str | None = None) -> str:
    """The folder that holds ``models--<owner>--<name>``."""
    found = given or environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE")
    return os.path.expanduser(found) if found else os.path.join(home_from(environ), "hub")


def token_from(environ: dict[str, str], token: str | None = None, token_file: str | None = None) -> str | None:
    """The token: given, from the file given, from ``HF_TOKEN``, or from the file `hf auth login` writes."""
    if token:
        return token.strip()
    if token_file:
        try:
            with open(os.path.expanduser(token_file), encoding="utf-8") as stream:
                return stream.read().strip() or None
        except OSError as error:
            raise HubError(f"token_file {token_file} cannot be read: {error.strerror}") from None
    if environ.get("HF_TOKEN"):
        return environ["HF_TOKEN"].strip()
    usual = environ.get("HF_TOKEN_PATH") or os.path.join(home_from(environ), "token")
    try:
        with open(os.path.expanduser(usual), encoding="utf-8") as stream:
            return stream.read().strip() or None
    except OSError:
        return None


def cached_snapshot(cache: str, repo: str, revision: str) -> tuple[str, str] | None:
    """``(folder, commit)`` of a repository's snapshot in the local cache, or None."""
    root = os.path.join(cache, "models--" + repo.replace("/", "--"))
    commit = revision
    if not COMMIT.match(revision):
        try:
            with open(os.path.join(root, "refs", *revision.split("/")), encoding="utf-8") as stream:
                commit = stream.read().strip()
        except OSError:
            return None
    folder = os.path.join(root, "snapshots", commit)
    return (folder, commit) if os.path.isdir(folder) else None


class _SameHostToken(urllib.request.HTTPRedirectHandler):
    """Follows redirects to the storage host, but leaves the token behind when the host changes."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None:
            before, after = (urllib.parse.urlsplit(url) for url in (req.full_url, request.full_url))
            if (before.scheme, before.netloc) != (after.scheme, after.netloc):
                request.remove_header("Authorization")
        return request


class Hub:
    """One repository at one commit. Reads file lists, small files and the heads of large ones."""

    def __init__(self, endpoint: str, repo: str, token: str | None = None, timeout: float = 20.0) -> None:
        self.endpoint = endpoint
        self.repo = repo
        self.timeout = timeout
        self._token = token
        self._open = urllib.request.build_opener(_SameHostToken()).open
        self.commit = ""

    def resolve(self, revision: str) -> dict[str, Any]:
        """Pin ``revision`` to a commit and return the hub's description, with the size of every file."""
        quoted = urllib.parse.quote(revision, safe="")
        url = f"{self.endpoint}/api/models/{self.repo}/revision/{quoted}?blobs=true"
        text = self._get(url, f"revision {revision!r}")
        try:
            description = json.loads(text)
            self.commit = str(description["sha"])
        except (ValueError, KeyError, TypeError):
            raise HubError(
                f"{self.endpoint} did not answer like a hub for {self.repo}: no JSON with a `sha`. Check HF_ENDPOINT."
            ) from None
        return dict(description)

    def read(self, name: str) -> bytes:
        """A whole (small) file."""
        return self._get(self._url(name), name)

    def head(self, name: str, size: int, start: int = 0) -> bytes:
        """``size`` bytes of a file from ``start``, by a range request; a server without ranges is cut off."""
        return self._get(self._url(name), name, start, size)

    def _url(self, name: str) -> str:
        return f"{self.endpoint}/{self.repo}/resolve/{self.commit}/{urllib.parse.quote(name)}"

    def _get(self, url: str, what: str, start: int = 0, size: int | None = None) -> bytes:
        request = urllib.request.Request(url, headers={"User-Agent": "dgx_spark.vllm"})
        if self._token:
            request.add_header("Authorization", "Bearer " + self._token)
        if size is not None:
            request.add_header("Range", f"bytes={start}-{start + size - 1}")
        try:
            with self._open(request, timeout=self.timeout) as answer:
                if size is None:
                    return bytes(answer.read())
                if answer.status != 206 and start:
                    answer.read(start)
                return bytes(answer.read(size))
        except urllib.error.HTTPError as error:
            raise self._explained(error, what) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise HubUnreachable(
                f"{self.endpoint} cannot be reached for {self.repo} ({reason}). Check the network and"
                " HF_ENDPOINT, or give a local directory or a checkpoint that is in the cache."
            ) from None

    def _explained(self, error: urllib.error.HTTPError, what: str) -> HubError:
        code = error.headers.get("X-Error-Code", "") if error.headers else ""
        page = f"{self.endpoint}/{self.repo}"
        if error.code >= 500 or error.code == 429:
            return HubUnreachable(f"{self.endpoint} answered {error.code} for {self.repo}: try again later.")
        if code == "GatedRepo" or error.code == 403:
            have = "The token given has no access" if self._token else "No token was given"
            return HubError(
                f"{self.repo} is gated ({error.code}). {have}: accept its terms at {page}"
                " and give a read token by token_file or HF_TOKEN."
            )
        if error.code == 401 and not self._token:
            return HubError(
                f"{self.repo} is private, gated or does not exist (401; without a token the hub does not say"
                f" which). Check the spelling at {page}; if it exists, give a token (token_file, HF_TOKEN)."
            )
        if error.code == 401:
            return HubError(
                f"The hub refused the token for {self.repo} (401): it is wrong, expired, or not for {page}."
            )
        if error.code == 404:
            return HubError(self._not_found(code, what, page))
        return HubError(f"{self.endpoint} answered {error.code} for {what} of {self.repo}.")

    def _not_found(self, code: str, what: str, page: str) -> str:
        if code == "RevisionNotFound":
            return f"{self.repo} has no {what} (404). See {page}/commits/main, or leave it out for main."
        if code == "RepoNotFound":
            return f"There is no repository {self.repo} at {self.endpoint} (404). Check the spelling."
        if not self.commit:
            return f"{self.repo} or its {what} does not exist at {self.endpoint} (404). Check the spelling."
        return f"{self.repo} has no file {what} at commit {self.commit} (404)."

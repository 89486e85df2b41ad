"""
A Hub on this machine for tests: the part of the Hub's HTTP protocol by which the unmodified `huggingface_hub` client
creates repositories, uploads to them, and downloads from them. Repositories live in memory.
"""

import base64
import hashlib
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import huggingface_hub.file_download
import huggingface_hub.hf_api
import huggingface_hub.utils._http
import transformers.utils.hub
from huggingface_hub import constants

TOKEN, USER = "hf_local", "alice"
LFS_SUFFIXES = (".safetensors", ".parquet", ".bin", ".pt", ".pkl", ".PKL")


@dataclass
class Repository:
    """Commits (each its files and title), and the names of some of them."""

    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        self.add_commit("main", {}, "initial commit")

    def add_commit(self, branch: str, files: dict[str, bytes], title: str) -> str:
        sha = hashlib.sha1(f"{len(self.commits)} {title} {sorted(files)}".encode()).hexdigest()
        self.commits[sha], self.titles[sha], self.branches[branch] = files, title, sha
        return sha

    def find(self, revision: str) -> str:
        sha = (self.branches | self.tags).get(revision, revision)
        if sha not in self.commits:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return sha

    def files(self, revision: str = "main") -> dict[str, bytes]:
        return self.commits[self.find(revision)]


def etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Refusal(Exception):
    """An answer other than success."""

    def __init__(self, status: int, message: str, code: str = ""):
        super().__init__(message)
        self.status, self.headers = status, {"X-Error-Message": message, "X-Error-Code": code}


class LocalHub:
    """
    The server, as a context manager; `endpoint` is its address, `requests` what it was asked, `faults` by pattern how
    many of the next such requests break off in their body.
    """

    def __init__(self):
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.faults: dict[str, int] = {}
        self.requests: list[str] = []
        self.lock = threading.RLock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"hub": self}))
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> "LocalHub":
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def environment(self, cache: object) -> dict[str, str]:
        """What a process has to find in its environment; `cache` is its folder for downloads."""
        ours = {"HF_ENDPOINT": self.endpoint, "HF_TOKEN": TOKEN, "HF_HOME": str(cache), "NO_PROXY": "127.0.0.1"}
        return ours | {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}

    def use_here(self, patch, cache: object) -> "LocalHub":
        """This process takes the server for the Hub, and waits for nothing, while `patch` (a `MonkeyPatch`) holds."""
        for name, value in self.environment(cache).items():
            patch.setenv(name, value)
        template = self.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        values = {"ENDPOINT": self.endpoint, "HUGGINGFACE_CO_URL_TEMPLATE": template, "HF_HUB_CACHE": str(cache)}
        for name, value in {**values, "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}.items():
            patch.setattr(constants, name, value)
        patch.setattr(transformers.utils.hub, "_hf_api", None)
        patch.setattr(huggingface_hub.hf_api.api, "endpoint", self.endpoint)
        for module in (huggingface_hub.utils._http, huggingface_hub.file_download):
            patch.setattr(module, "time", SimpleNamespace(sleep=lambda seconds: None, time=time.time))
        return self

    def repository(self, repo_id: str, kind: str = "models") -> Repository:
        return self.repositories[kind, repo_id]

    def put(self, repo_id: str, files: dict[str, bytes]) -> None:
        """Files as an attacker may have put them there; whatever was there before stays."""
        repository = self.repositories.setdefault(("models", repo_id), Repository())
        repository.add_commit("main", repository.files() | files, "tampered")

    def sent(self, pattern: str) -> int:
        """How many requests were like that, such as `PUT /lfs/`."""
        return sum(re.match(pattern, request) is not None for request in self.requests)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    hub: LocalHub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: object) -> None:
        pass

    def answer(self) -> None:
        self.path = unquote(self.path.partition("?")[0])
        self.hub.requests.append(f"{self.command} {self.path}")
        with self.hub.lock:
            for pattern, times in self.hub.faults.items():
                if times and re.match(pattern, self.hub.requests[-1]):
                    self.hub.faults[pattern] -= 1
                    self.close_connection = True
                    return self.connection.close()
        body = self._body()
        try:
            with self.hub.lock:
                self._route(body)
        except Refusal as refusal:
            self.send(json.dumps({"error": str(refusal)}).encode(), refusal.status, **refusal.headers)

    do_GET = do_HEAD = do_POST = do_PUT = answer

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size + 2)[:-2]
        self.rfile.readline()
        return body

    def send(self, data: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _route(self, body: bytes) -> None:
        for method, pattern, action in ROUTES:
            match = re.fullmatch(pattern, self.path)
            if match and self.command in method.split():
                groups = match.groupdict()
                if "id" in groups:
                    groups["repository"] = self._repository(groups.pop("kind") or "models", groups.pop("id"))
                result = getattr(self, action)(body=body, **groups)
                if result is not None:
                    self.send(json.dumps(result).encode(), Content_Type="application/json")
                return
        raise Refusal(404, f"{self.command} {self.path} is not known here", "EntryNotFound")

    def _repository(self, kind: str, name: str) -> Repository:
        self.name, found = name, self.hub.repositories.get((kind, name))
        is_known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if found is None or not (is_known or (self.command in ("GET", "HEAD") and not found.private)):
            raise Refusal(404 if is_known else 401, "Repository not found", "RepoNotFound")
        return found

    def create(self, body: bytes) -> Any:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise Refusal(401, "Invalid credentials in Authorization header")
        wanted = json.loads(body)
        key = (wanted.get("type", "model") + "s", f"{wanted.get('organization') or USER}/{wanted['name']}")
        if not key[1].startswith(f"{USER}/"):
            raise Refusal(403, "You don't have the rights to create a model there")
        self.hub.repositories.setdefault(key, Repository(private=wanted.get("visibility") == "private"))
        return {"url": f"{self.hub.endpoint}/{key[1]}", "id": key[1]}

    def validate_yaml(self, body: bytes) -> Any:
        return {"errors": [], "warnings": []}

    def preupload(self, repository: Repository, body: bytes, revision: str) -> Any:
        paths = [file["path"] for file in json.loads(body)["files"]]
        modes = {path: "lfs" if path.endswith(LFS_SUFFIXES) else "regular" for path in paths}
        return {"files": [{"path": path, "uploadMode": modes[path], "shouldIgnore": False} for path in paths]}

    def batch(self, repository: Repository, body: bytes) -> Any:
        objects = json.loads(body)["objects"]
        for wanted in objects:
            if wanted["oid"] not in self.hub.objects:
                wanted["actions"] = {"upload": {"href": f"{self.hub.endpoint}/lfs/{wanted['oid']}"}}
        return {"transfer": "basic", "objects": objects}

    def upload(self, body: bytes, oid: str) -> Any:
        if etag(body) != oid:
            raise Refusal(400, "the content does not have the hash that was announced")
        self.hub.objects[oid] = body
        return {}

    def commit(self, repository: Repository, body: bytes, revision: str) -> Any:
        header, *lines = [json.loads(line)["value"] for line in body.splitlines()]
        files = {
            line["path"]: base64.b64decode(line["content"]) if "content" in line else self.hub.objects[line["oid"]]
            for line in lines
        }
        sha = repository.add_commit(revision, repository.files(revision) | files, header["summary"])
        return {"success": True, "commitOid": sha, "commitUrl": f"{self.hub.endpoint}/{self.name}/commit/{sha}"}

    def info(self, repository: Repository, body: bytes, revision: str | None) -> Any:
        sha = repository.find(revision or "main")
        return {"id": self.name, "sha": sha, "private": repository.private, "siblings": [], "tags": []}

    def tree(self, repository: Repository, body: bytes, revision: str) -> Any:
        files = repository.files(revision).items()
        return [{"type": "file", "path": path, "size": len(data), "oid": etag(data)} for path, data in files]

    def create_branch(self, repository: Repository, body: bytes, name: str) -> Any:
        if name in repository.branches:
            raise Refusal(409, "Reference already exists")
        repository.branches[name] = repository.find(json.loads(body).get("startingPoint", "main"))
        return {}

    def create_tag(self, repository: Repository, body: bytes, revision: str) -> Any:
        name = json.loads(body)["tag"]
        if name in repository.tags:
            raise Refusal(409, "Tag reference exists already")
        repository.tags[name] = repository.find(revision)
        return {}

    def resolve(self, repository: Repository, body: bytes, revision: str, file: str) -> None:
        sha = repository.find(revision)
        data = repository.commits[sha].get(file)
        if data is None:
            raise Refusal(404, f"{file} does not exist", "EntryNotFound")
        self.send(data, X_Repo_Commit=sha, ETag=f'"{etag(data)}"')


_REPOSITORY = r"/(?:(?P<kind>models|datasets)/)?(?P<id>[\w.-]+/[\w.-]+)"
ROUTES = [
    ("POST", "/api/repos/create", "create"),
    ("POST", "/api/validate-yaml", "validate_yaml"),
    ("PUT", "/lfs/(?P<oid>[0-9a-f]{64})", "upload"),
    ("POST", rf"{_REPOSITORY}\.git/info/lfs/objects/batch", "batch"),
    ("POST", f"/api{_REPOSITORY}/preupload/(?P<revision>.+)", "preupload"),
    ("POST", f"/api{_REPOSITORY}/commit/(?P<revision>.+)", "commit"),
    ("POST", f"/api{_REPOSITORY}/branch/(?P<name>.+)", "create_branch"),
    ("POST", f"/api{_REPOSITORY}/tag/(?P<revision>.+)", "create_tag"),
    ("GET", f"/api{_REPOSITORY}(?:/revision/(?P<revision>.+))?", "info"),
    ("GET", f"/api{_REPOSITORY}/tree/(?P<revision>[^/]+)", "tree"),
    ("GET HEAD", f"{_REPOSITORY}/resolve/(?P<revision>[^/]+)/(?P<file>.+)", "resolve"),
]

"""
A Hub on this machine for tests: the Hub's HTTP protocol, as the unmodified `huggingface_hub` client speaks it.
Repositories live in memory. Faults come on demand:

    hub.faults.append(Fault("PUT", "/lfs/", "cut"))
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
from urllib.parse import parse_qs, unquote

import huggingface_hub.file_download
import huggingface_hub.hf_api
import huggingface_hub.utils._http
import transformers.utils.hub
from huggingface_hub import constants
from huggingface_hub.utils.sha import git_hash

TOKEN, USER = "hf_local", "alice"
LFS_SUFFIXES = (".safetensors", ".npy", ".parquet", ".arrow", ".bin", ".pt", ".pth", ".pkl", ".pickle")
REPOSITORY = r"/(?:(?P<kind>models|datasets)/)?(?P<id>[\w.-]+/[\w.-]+)"


@dataclass
class Fault:
    """
    What goes wrong with requests of a `method` whose path holds a regular expression: `error` (answers 500) or `cut`
    (the connection ends in the middle of the request's body), so many `times`.
    """

    method: str
    path: str
    kind: str
    times: int = 1


@dataclass(frozen=True)
class Blob:
    """A file's content; `lfs` files are known by their SHA-256, others by git's hash."""

    data: bytes
    lfs: bool = False

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def described(self) -> dict[str, Any]:
        """Size and hashes, as the tree says them."""
        if not self.lfs:
            return {"size": len(self.data), "oid": git_hash(self.data)}
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.data)}\n"
        lfs = {"oid": self.sha256, "size": len(self.data), "pointerSize": len(pointer)}
        return {"size": len(self.data), "oid": git_hash(pointer.encode()), "lfs": lfs}


@dataclass
class Repository:
    """Commits (each its files, title and parent), and the names of some of them."""

    private: bool = False
    commits: dict[str, dict[str, Blob]] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    pull_requests: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        self.branches["main"] = self.add_commit({}, "initial commit")

    def add_commit(self, files: dict[str, Blob], title: str) -> str:
        sha = hashlib.sha1(f"{len(self.commits)} {title} {sorted(files)}".encode()).hexdigest()
        self.commits[sha], self.titles[sha] = files, title
        return sha

    def find(self, revision: str) -> str | None:
        names = self.branches | self.tags | self.pull_requests
        return names.get(revision, revision if revision in self.commits else None)

    def files(self, revision: str = "main") -> dict[str, Blob]:
        return self.commits[self.find(revision)]


class Refusal(Exception):
    """An answer other than success."""

    def __init__(self, status: int, message: str, code: str | None = None, **headers: str):
        super().__init__(message)
        self.status = status
        self.headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **headers}


class LocalHub:
    """The server, as a context manager; `endpoint` is its address."""

    def __init__(self):
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.faults: list[Fault] = []
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
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(cache),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
        }

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

    def put(self, repo_id: str, files: dict[str, bytes], revision: str = "main", kind: str = "models") -> None:
        """Files as an attacker may have put them there; whatever was there before stays."""
        repository = self.repositories.setdefault((kind, repo_id), Repository())
        blobs = {path: Blob(data, path.endswith(LFS_SUFFIXES)) for path, data in files.items()}
        repository.branches[revision] = repository.add_commit(repository.files(revision) | blobs, "tampered")

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
        self.path, _, query = self.path.partition("?")
        self.path, self.query = unquote(self.path), {name: values[0] for name, values in parse_qs(query).items()}
        if not self.path.startswith("/api/agent-"):  # which the client asks by itself
            self.hub.requests.append(f"{self.command} {self.path}")
        fault = self._next_fault()
        if fault == "cut":
            self.rfile.read(int(self.headers.get("Content-Length") or 4096) // 2)
            self.close_connection = True
            self.connection.close()
            return
        body = self._body()
        try:
            if fault == "error":
                raise Refusal(500, "a fault on demand")
            self._route(body)
        except Refusal as refusal:
            # The Hub itself says what is wrong in the body, too.
            self.send(json.dumps({"error": str(refusal)}).encode(), refusal.status, **refusal.headers)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer

    def _next_fault(self) -> str | None:
        with self.hub.lock:
            for fault in self.hub.faults:
                if fault.times > 0 and fault.method == self.command and re.search(fault.path, self.path):
                    fault.times -= 1
                    return fault.kind
        return None

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def send(self, data: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value.replace("\n", " "))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _route(self, body: bytes) -> None:
        for method, pattern, action in ROUTES:
            match = re.fullmatch(pattern, self.path)
            if match and self.command in method.split():
                groups = match.groupdict()
                with self.hub.lock:
                    kind, name = groups.pop("kind", None) or "models", groups.pop("id", None)
                    repository = [] if name is None else [self._repository(kind, name)]
                    result = getattr(self, action)(*repository, body, **groups)
                if result is not None:
                    self.send(json.dumps(result).encode(), Content_Type="application/json")
                return
        raise Refusal(404, f"{self.command} {self.path} is not known here", "EntryNotFound")

    def _is_known(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _need_token(self) -> None:
        if not self._is_known():
            raise Refusal(401, "Invalid credentials in Authorization header")

    def _repository(self, kind: str, id: str) -> Repository:
        self.kind, self.id = kind, id
        found = self.hub.repositories.get((kind, id))
        if found is None or (found.private and not self._is_known()):
            raise Refusal(404 if self._is_known() else 401, "Repository not found", "RepoNotFound")
        if self.command != "GET" and self.command != "HEAD":
            self._need_token()
        return found

    def _commit_of(self, repository: Repository, revision: str) -> str:
        sha = repository.find(revision)
        if sha is None:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return sha

    def create(self, body: bytes) -> Any:
        self._need_token()
        wanted = json.loads(body)
        kind, name = wanted.get("type", "model") + "s", f"{wanted.get('organization') or USER}/{wanted['name']}"
        url = f"{self.hub.endpoint}/{'' if kind == 'models' else kind + '/'}{name}"
        if not name.startswith(f"{USER}/"):
            raise Refusal(403, f"You don't have the rights to create a {wanted.get('type', 'model')} there")
        if (kind, name) in self.hub.repositories:
            return self.send(json.dumps({"url": url, "error": "You already created this repo"}).encode(), 409)
        self.hub.repositories[kind, name] = Repository(private=wanted.get("visibility") == "private")
        return {"url": url, "id": name}

    def validate_yaml(self, body: bytes) -> Any:
        return {"errors": [], "warnings": []}

    def preupload(self, repository: Repository, body: bytes, revision: str) -> Any:
        self._commit_of(repository, revision)
        files = [(file["path"], file["path"].endswith(LFS_SUFFIXES)) for file in json.loads(body)["files"]]
        modes = {False: "regular", True: "lfs"}
        return {"files": [{"path": path, "uploadMode": modes[lfs], "shouldIgnore": False} for path, lfs in files]}

    def batch(self, repository: Repository, body: bytes) -> Any:
        objects = json.loads(body)["objects"]
        for wanted in objects:
            if wanted["oid"] not in self.hub.objects:
                wanted["actions"] = {"upload": {"href": f"{self.hub.endpoint}/lfs/{wanted['oid']}"}}
        return {"transfer": "basic", "objects": objects}

    def upload(self, body: bytes, oid: str) -> Any:
        if hashlib.sha256(body).hexdigest() != oid:
            raise Refusal(400, "the content does not have the hash that was announced")
        self.hub.objects[oid] = body
        return {}

    def commit(self, repository: Repository, body: bytes, revision: str) -> Any:
        lines = [json.loads(line) for line in body.splitlines()]
        files = dict(repository.commits[self._commit_of(repository, revision)])
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = Blob(base64.b64decode(value["content"]))
            else:
                files[value["path"]] = Blob(self.hub.objects[value["oid"]], lfs=True)
        if revision not in repository.branches and "create_pr" not in self.query:
            raise Refusal(400, f"{revision} is no branch")
        sha = repository.add_commit(files, lines[0]["value"]["summary"])
        url = f"{self.hub.endpoint}/{self.id}"
        result = {"success": True, "commitOid": sha, "commitUrl": f"{url}/commit/{sha}"}
        if "create_pr" in self.query:
            number = len(repository.pull_requests) + 1
            repository.pull_requests[f"refs/pr/{number}"] = sha
            return result | {"pullRequestUrl": f"{url}/discussions/{number}"}
        repository.branches[revision] = sha
        return result

    def info(self, repository: Repository, body: bytes, revision: str | None) -> Any:
        sha = self._commit_of(repository, revision or "main")
        siblings = [{"rfilename": path} for path in repository.commits[sha]]
        return {"id": self.id, "sha": sha, "private": repository.private, "siblings": siblings, "tags": []}

    def tree(self, repository: Repository, body: bytes, revision: str) -> Any:
        files = repository.commits[self._commit_of(repository, revision)]
        return [{"type": "file", "path": path, **blob.described()} for path, blob in files.items()]

    def refs(self, repository: Repository, body: bytes) -> Any:
        tags = [
            {"name": name, "ref": f"refs/tags/{name}", "targetCommit": sha} for name, sha in repository.tags.items()
        ]
        return {"branches": [], "tags": tags, "converts": [], "pullRequests": []}

    def create_branch(self, repository: Repository, body: bytes, name: str) -> Any:
        if name in repository.branches:
            raise Refusal(409, "Reference already exists")
        repository.branches[name] = self._commit_of(repository, json.loads(body).get("startingPoint", "main"))
        return {}

    def create_tag(self, repository: Repository, body: bytes, revision: str) -> Any:
        name = json.loads(body)["tag"]
        if name in repository.tags:
            raise Refusal(409, "Tag reference exists already")
        repository.tags[name] = self._commit_of(repository, revision)
        return {}

    def resolve(self, repository: Repository, body: bytes, revision: str, file: str) -> None:
        sha = self._commit_of(repository, revision)
        blob = repository.commits[sha].get(file)
        if blob is None:
            raise Refusal(404, f"{file} does not exist", "EntryNotFound", **{"X-Repo-Commit": sha})
        headers = {"X-Repo-Commit": sha, "ETag": f'"{blob.described()["oid"]}"'}
        if blob.lfs:
            headers |= {"X-Linked-ETag": f'"{blob.sha256}"', "X-Linked-Size": str(len(blob.data))}
        self.send(blob.data, **headers)


_API = f"/api{REPOSITORY}"
ROUTES = [
    ("POST", "/api/repos/create", "create"),
    ("POST", "/api/validate-yaml", "validate_yaml"),
    ("PUT", "/lfs/(?P<oid>[0-9a-f]{64})", "upload"),
    ("POST", rf"{REPOSITORY}\.git/info/lfs/objects/batch", "batch"),
    ("POST", f"{_API}/preupload/(?P<revision>.+)", "preupload"),
    ("POST", f"{_API}/commit/(?P<revision>.+)", "commit"),
    ("POST", f"{_API}/branch/(?P<name>.+)", "create_branch"),
    ("POST", f"{_API}/tag/(?P<revision>.+)", "create_tag"),
    ("GET", f"{_API}(?:/revision/(?P<revision>.+))?", "info"),
    ("GET", f"{_API}/tree/(?P<revision>refs/pr/[0-9]+|[^/]+)", "tree"),
    ("GET", f"{_API}/refs", "refs"),
    ("GET HEAD", f"{REPOSITORY}/resolve/(?P<revision>refs/pr/[0-9]+|[^/]+)/(?P<file>.+)", "resolve"),
]

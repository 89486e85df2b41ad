"""
A Hub on this machine for tests: the Hub's HTTP protocol, as the unmodified `huggingface_hub` client speaks it.

    python -m tests.local_hub --port 8765

prints the variables under which any program takes it for the Hub. Repositories live in memory. Faults come on demand:

    hub.faults.append(Fault("PUT", "/lfs/", "cut"))
"""

import argparse
import base64
import contextlib
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
import yaml
from huggingface_hub import constants
from huggingface_hub.utils.sha import git_hash

TOKEN, USER = "hf_local", "alice"
LFS_SUFFIXES = (".safetensors", ".npy", ".parquet", ".arrow", ".bin", ".pt", ".pth", ".pkl", ".pickle")
REPOSITORY = r"/(?:(?P<kind>models|datasets)/)?(?P<id>[\w.-]+/[\w.-]+)"


@dataclass
class Fault:
    """
    What goes wrong with requests.

    Args:
        method (`str`): of the requests.
        path (`str`): regular expression that their path holds.
        kind (`str`): `error` (answers `status`), `cut` (the connection ends in the middle of the body, of the request
            for PUT and of the answer for GET), `drop` (it ends before the answer).
        times (`int`): how many requests.
    """

    method: str
    path: str
    kind: str
    times: int = 1
    status: int = 500


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
    """
    The server, as a context manager; `endpoint` is its address.

    Args:
        port (`int`, *optional*): by default a free one.
    """

    def __init__(self, port: int = 0):
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.lock = threading.RLock()
        self.server = ThreadingHTTPServer(("127.0.0.1", port), type("BoundHandler", (Handler,), {"hub": self}))
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
        self.fault = self._next_fault()
        if not self.path.startswith("/api/agent-"):  # which the client asks by itself
            self.hub.requests.append(f"{self.command} {self.path}")
        kind = self.fault.kind if self.fault else None
        if kind == "cut" and self.command == "PUT":
            self.rfile.read(int(self.headers.get("Content-Length") or 4096) // 2)
            return self._hang_up()
        body = self._body()
        if kind == "drop":
            return self._hang_up()
        try:
            if kind == "error":
                raise Refusal(self.fault.status, "a fault on demand")
            self._route(body)
        except Refusal as refusal:
            # The Hub itself says what is wrong in the body, too.
            self.send(json.dumps({"error": str(refusal)}).encode(), refusal.status, **refusal.headers)
        return None

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer

    def _next_fault(self) -> Fault | None:
        with self.hub.lock:
            for fault in self.hub.faults:
                if fault.times > 0 and fault.method == self.command and re.search(fault.path, self.path):
                    fault.times -= 1
                    return fault
        return None

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

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
        kind = self.fault.kind if self.fault and status < 300 else None
        if self.command == "HEAD":
            return
        self.wfile.write(data[: len(data) // 2] if kind == "cut" else data)
        if kind == "cut":
            self._hang_up()

    def reply(self, value: Any) -> None:
        self.send(json.dumps(value).encode(), Content_Type="application/json")

    def _route(self, body: bytes) -> None:
        for method, pattern, action in ROUTES:
            match = re.fullmatch(pattern, self.path)
            if match and self.command in method.split():
                with self.hub.lock:
                    answer = getattr(self, action)
                    repository = [self._repository(**_identity(match))] if "id" in match.groupdict() else []
                    others = {name: value for name, value in match.groupdict().items() if name not in ("kind", "id")}
                    result = answer(*repository, body, **others)
                return None if result is None else self.reply(result)
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
        if self.command != "GET" and self.command != "HEAD" and "paths-info" not in self.path:
            self._need_token()
        return found

    def _commit_of(self, repository: Repository, revision: str) -> str:
        sha = repository.find(revision)
        if sha is None:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return sha

    def whoami(self, body: bytes) -> Any:
        self._need_token()
        return {"type": "user", "name": USER, "fullname": USER, "orgs": [], "auth": {"type": "access_token"}}

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
        content = json.loads(body)["content"]
        match = re.match(r"---\n(.*?)\n---\n", content, re.DOTALL)
        try:
            valid = match is None or isinstance(yaml.safe_load(match[1]), dict)
        except yaml.YAMLError:
            valid = False
        warnings = [] if match else [{"message": "empty or missing yaml metadata"}]
        errors = [] if valid else [{"message": "not YAML"}]
        return self.send(json.dumps({"errors": errors, "warnings": warnings}).encode(), 200 if valid else 400)

    def preupload(self, repository: Repository, body: bytes, revision: str) -> Any:
        present = repository.commits[self._commit_of(repository, revision)]
        files = []
        for file in json.loads(body)["files"]:
            blob = present.get(file["path"])
            lfs = file["path"].endswith(LFS_SUFFIXES) or file["size"] > 10_000_000
            files.append({"path": file["path"], "uploadMode": "lfs" if lfs else "regular", "shouldIgnore": False})
            if blob is not None:
                files[-1]["oid"] = blob.sha256 if blob.lfs else git_hash(blob.data)
        return {"files": files}

    def batch(self, repository: Repository, body: bytes) -> Any:
        answers = []
        for wanted in json.loads(body)["objects"]:
            url = f"{self.hub.endpoint}/lfs/{wanted['oid']}"
            actions = {"upload": {"href": url}, "verify": {"href": f"{url}/verify"}}
            known = wanted["oid"] in self.hub.objects
            answers.append({**wanted, **({} if known else {"actions": actions})})
        return {"transfer": "basic", "objects": answers}

    def upload(self, body: bytes, oid: str) -> Any:
        if hashlib.sha256(body).hexdigest() != oid:
            raise Refusal(400, "the content does not have the hash that was announced")
        self.hub.objects[oid] = body
        return {}

    def verify(self, body: bytes, oid: str) -> Any:
        if len(self.hub.objects.get(oid, b"")) != json.loads(body)["size"]:
            raise Refusal(404, "no such object")
        return {}

    def commit(self, repository: Repository, body: bytes, revision: str) -> Any:
        lines = [json.loads(line) for line in body.splitlines()]
        files = dict(repository.commits[self._commit_of(repository, revision)])
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = Blob(base64.b64decode(value["content"]))
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.hub.objects:
                    raise Refusal(400, f"{value['path']}: its content was never uploaded")
                files[value["path"]] = Blob(self.hub.objects[value["oid"]], lfs=True)
            else:
                files = {path: blob for path, blob in files.items() if not path.startswith(value["path"])}
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

    def tree(self, repository: Repository, body: bytes, revision: str, folder: str | None) -> Any:
        files = repository.commits[self._commit_of(repository, revision)]
        inside = {path: blob for path, blob in files.items() if not folder or path.startswith(f"{folder}/")}
        if folder and not inside:
            raise Refusal(404, f"{folder} does not exist", "EntryNotFound")
        return [{"type": "file", "path": path, **blob.described()} for path, blob in inside.items()]

    def paths_info(self, repository: Repository, body: bytes, revision: str) -> Any:
        files = repository.commits[self._commit_of(repository, revision)]
        wanted = parse_qs(body.decode())["paths"]
        return [{"type": "file", "path": path, **files[path].described()} for path in wanted if path in files]

    def refs(self, repository: Repository, body: bytes) -> Any:
        def listed(names: dict[str, str], prefix: str) -> list[dict[str, str]]:
            return [{"name": name, "ref": prefix + name, "targetCommit": sha} for name, sha in names.items()]

        requests = listed(repository.pull_requests, "")
        branches, tags = listed(repository.branches, "refs/heads/"), listed(repository.tags, "refs/tags/")
        return {"branches": branches, "tags": tags, "converts": [], "pullRequests": requests}

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
        headers = {"X-Repo-Commit": sha, "ETag": f'"{blob.described()["oid"]}"', "Accept-Ranges": "bytes"}
        if blob.lfs:
            headers |= {"X-Linked-ETag": f'"{blob.sha256}"', "X-Linked-Size": str(len(blob.data))}
        start = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if start is None:
            return self.send(blob.data, **headers)
        first, size = int(start[1]), len(blob.data)
        headers["Content-Range"] = f"bytes {first}-{size - 1}/{size}"
        return self.send(blob.data[first:], 206, **headers)


def _identity(match: re.Match[str]) -> dict[str, str]:
    return {"kind": match["kind"] or "models", "id": match["id"]}


_API = f"/api{REPOSITORY}"
ROUTES = [
    ("GET", "/api/whoami-v2", "whoami"),
    ("POST", "/api/repos/create", "create"),
    ("POST", "/api/validate-yaml", "validate_yaml"),
    ("PUT", "/lfs/(?P<oid>[0-9a-f]{64})", "upload"),
    ("POST", "/lfs/(?P<oid>[0-9a-f]{64})/verify", "verify"),
    ("POST", rf"{REPOSITORY}\.git/info/lfs/objects/batch", "batch"),
    ("POST", f"{_API}/preupload/(?P<revision>.+)", "preupload"),
    ("POST", f"{_API}/commit/(?P<revision>.+)", "commit"),
    ("POST", f"{_API}/paths-info/(?P<revision>.+)", "paths_info"),
    ("POST", f"{_API}/branch/(?P<name>.+)", "create_branch"),
    ("POST", f"{_API}/tag/(?P<revision>.+)", "create_tag"),
    ("GET", f"{_API}(?:/revision/(?P<revision>.+))?", "info"),
    ("GET", f"{_API}/tree/(?P<revision>refs/pr/[0-9]+|[^/]+)(?:/(?P<folder>.+))?", "tree"),
    ("GET", f"{_API}/refs", "refs"),
    ("GET HEAD", f"{REPOSITORY}/resolve/(?P<revision>refs/pr/[0-9]+|[^/]+)/(?P<file>.+)", "resolve"),
]


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8765)
    with LocalHub(parser.parse_args().port) as hub:
        variables = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
        print("\n".join(f"export {name}={value}" for name, value in variables.items()), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()

"""Servers in processes of their own, for tests that ask them."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[int]:
    """The port, `PORT` among the words, at which `python -m WORDS` answers in a folder; it ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command, log = [sys.executable, "-m", *(str(port) if word == "PORT" else word for word in words)], folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT)
    try:
        for _ in range(600):
            try:
                urlopen(f"http://localhost:{port}", timeout=5)
                break
            except HTTPError:  # an answer, too
                break
            except OSError:
                assert process.poll() is None, log.read_text()[-5000:]
                time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        process.wait(timeout=30)

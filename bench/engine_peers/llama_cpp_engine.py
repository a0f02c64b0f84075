"""llama.cpp's server with 8 slots, asked over a unix socket; its caches are as they are by default.

It is started anew for each run, which empties them. End of text is banned there rather than
ignored, the nearest that it offers. May import the standard library.
"""

import http.client
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.engine_peers.base import Answers, Prompt, Task

ROOT = Path(__file__).resolve().parent.parent.parent
SERVER = ROOT / "build" / "llama.cpp" / "build" / "bin" / "llama-server"
_SLOTS = 8
#: Room for the longest prompt and its answer in each slot.
_SLOT_TOKENS = 4096
_PATIENCE_S = 120.0


def load(task: Task, mode: str) -> "LlamaCpp":
    """Start the server; `mode` is the format of the weights."""
    return LlamaCpp(task.gguf_dir / f"smollm2-{mode}.gguf", task.threads)


class LlamaCpp:
    """One server."""

    def __init__(self, file: Path, threads: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dm-llama-")
        self._socket = Path(self._folder.name) / "llama.sock"
        self._command = [
            *(str(SERVER), "--model", str(file), "--host", str(self._socket)),
            *("--threads", str(threads), "--threads-batch", str(threads)),
            *("--parallel", str(_SLOTS), "--ctx-size", str(_SLOTS * _SLOT_TOKENS)),
            *("--offline", "--no-webui"),
        ]
        self._server = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        self._socket.unlink(missing_ok=True)
        server = subprocess.Popen(self._command)
        give_up_at = time.monotonic() + _PATIENCE_S
        while not self._is_healthy():
            if server.poll() is not None or time.monotonic() > give_up_at:
                server.kill()
                raise SystemExit(f"llama.cpp's server did not start: {self._command}")
            time.sleep(0.05)
        return server

    def _is_healthy(self) -> bool:
        try:
            return bool(self._ask("GET", "/health").get("status") == "ok")
        except OSError:
            return False

    def forget(self) -> None:
        """Start a new server."""
        self._stop()
        self._server = self._start()

    def answer(self, prompts: Sequence[Prompt]) -> Answers:
        """Ask for all prompts at once; the server takes as many as it has slots."""
        with ThreadPoolExecutor(len(prompts)) as threads:
            return dict(threads.map(self._complete, prompts))

    def _complete(self, prompt: Prompt) -> tuple[str, list[int]]:
        asked = {
            "prompt": list(prompt.ids),
            "n_predict": prompt.max_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "return_tokens": True,
        }
        return prompt.prompt_id, self._ask("POST", "/completion", asked)["tokens"]

    def _ask(self, method: str, path: str, content: object = None) -> dict[str, Any]:
        connection = _UnixConnection(self._socket)
        try:
            connection.request(method, path, json.dumps(content) if content else None)
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()

    def close(self) -> None:
        """End the server."""
        self._stop()
        self._folder.cleanup()

    def _stop(self) -> None:
        self._server.terminate()
        self._server.wait()


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))

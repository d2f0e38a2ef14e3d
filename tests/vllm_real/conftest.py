"""A real vLLM server for the tests of this folder. They run where GFCR_VLLM names a Python that has vLLM (`make test-vllm` sets it)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "engine" / "http"))
PYTHON = os.environ.get("GFCR_VLLM")
START_SECONDS = 400


def pytest_collection_modifyitems(items):
    if PYTHON is None:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="GFCR_VLLM names no Python with vLLM: make test-vllm"))


class Vllm:
    """A server in a process group of its own."""

    def __init__(self, model: Path, port: int, log: Path, *flags: str, processed: bool = True) -> None:
        self.port, self.log = port, log
        mode = ["--logprobs-mode", "processed_logprobs"] if processed else []
        self.command = [
            str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port), "--host", "127.0.0.1",
            "--dtype", "float32", "--max-num-seqs", "64", "--enforce-eager", "--enable-scale-out", "--enable-prompt-tokens-details",
            *mode, *flags,
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        own = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
        own |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | own
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        for _ in range(START_SECONDS):
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=2):
                    return
            except OSError:
                time.sleep(1)
        raise AssertionError(self.log.read_text()[-3000:])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def counter(self, name: str) -> int:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as reply:
            text = reply.read().decode()
        return int(sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"vllm:{name}{{")))

    def kill(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait(20)
        for _ in range(200):  # the children hold the port
            if not subprocess.run(["pgrep", "-g", str(self.process.pid)], capture_output=True, check=False).stdout:
                return
            time.sleep(0.1)


@pytest.fixture(scope="session")
def vllm(tmp_path_factory):
    """`vllm(model, port, *flags)`: a started server; all are killed at the end."""
    started = []
    folder = tmp_path_factory.mktemp("vllm")

    def start(model: Path, port: int, *flags: str, **more) -> Vllm:
        started.append(Vllm(model, port, folder / f"{port}.log", *flags, **more))
        return started[-1]

    yield start
    for server in started:
        server.kill()

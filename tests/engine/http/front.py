"""A small server that speaks vLLM's token routes, over gfcr's embedded engine and a real model: the upstream of the tests of HTTP engines.

It counts what its engine sampled (the engine's own count), not what it sent. Run as a program, `python front.py MODEL`, it loads the
model once and forks a server for every line {"raw": ..., "slow": ..., "port": ...} it reads, so that starting one again costs nothing;
`Front` starts, kills and restarts a server.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

SRC = Path(__file__).parents[3] / "src"


class Upstream:
    def __init__(self, module, tokenizer, raw: bool, slow: float) -> None:
        from gfcr.engine.embedded import EmbeddedEngine, EmbeddedSettings

        self.engine = EmbeddedEngine(module, EmbeddedSettings(slots=64, dtype="float32"), decode=tokenizer.decode)
        self.decode, self.encode = tokenizer.decode, tokenizer.encode
        self.name, self.raw, self.slow = "lab", raw, slow
        self.label, self.boot = "default", time.time()
        self.queues: dict[str, asyncio.Queue] = {}
        self.spec: dict[str, dict] = {}
        self.costs: dict[str, tuple[int, int]] = {}
        self.calls: Counter[str] = Counter()
        self.prompts = 0
        self.paused = False
        self.woken = asyncio.Event()

    async def run(self) -> None:
        """Sample as long as there are requests; one token of each at a time."""
        while True:
            if not self.engine.live():
                self.woken.clear()
                await self.woken.wait()
            chunks = self.engine.step(1)
            self.costs |= {p.request: (p.computed + p.cached, p.cached) for p in self.engine.prefilled()}
            for chunk in chunks:
                await self.queues[chunk.request].put(chunk)
            await asyncio.sleep(self.slow)

    def sampling(self, params: dict):
        from gfcr.types import Sampling

        names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
        return Sampling(**{n: params[n] for n in names if n in params})

    def submit(self, name: str, ids: list[int], params: dict) -> asyncio.Queue:
        from gfcr.engine.contract import Request, StopSpec
        from gfcr.types import Node, Segment, SegmentKind

        path = (Node("n", None, Segment(SegmentKind.PROMPT, np.array(ids, np.int32))),)
        stop = StopSpec(tuple(params.get("stop_token_ids") or ()), tuple(params.get("stop") or ()))
        if len(ids) + 1 > self.engine.max_length:
            raise ValueError("longer than the model")
        self.engine.submit(Request(name, path, self.sampling(params), params["max_tokens"], int(params.get("seed") or 0), stop))
        self.queues[name] = asyncio.Queue()
        self.prompts += len(ids)
        self.woken.set()
        return self.queues[name]

    def law(self, context: list[int], temperature: float, tokens) -> dict[int, float]:
        """Log-probabilities of tokens after a context."""
        from gfcr.engine.contract import ScoreItem
        from gfcr.types import Sampling

        law = Sampling(temperature=1.0 if self.raw else temperature)
        n = len(context)
        items = [ScoreItem(str(t), np.array([*context, t], np.int32), ((n, n + 1, law),)) for t in tokens]
        return {int(s.id): max(float(s.logprobs[-1]), -9999.0) for s in self.engine.score(items)}

    def prompt_logprobs(self, ids: list[int]) -> list:
        from gfcr.engine.contract import ScoreItem
        from gfcr.types import Sampling

        if len(ids) < 2:
            return [None] * len(ids)
        (score,) = self.engine.score([ScoreItem("p", np.array(ids, np.int32), ((1, len(ids), Sampling()),))])
        return [None, *({str(t): {"logprob": float(v), "rank": 0}} for t, v in zip(ids[1:], score.logprobs[1:]))]

    def usage(self, name: str, prompt: int, sampled: int) -> dict:
        details = {"cached_tokens": self.costs[name][1]} if name in self.costs else None
        return {"prompt_tokens": prompt, "completion_tokens": sampled, "prompt_tokens_details": details}

    def choice(self, chunk, name: str, total: int, label: str, tops: list | None = None) -> dict:
        finish, reason = None, None
        if chunk.stop is not None:
            finish = {"eos": "stop", "stop_string": "stop", "cancelled": "abort"}.get(str(chunk.stop), "length")
            if str(chunk.stop) == "eos":
                reason = int(chunk.ids[-1])
            elif str(chunk.stop) == "stop_string":
                reason = self.spec[name]["stop"][0]
        content = [{"token_id": int(t), "logprob": float(v)} for t, v in zip(chunk.ids, chunk.logprobs)]
        if tops:
            content[0]["top_logprobs"] = tops
        return {
            "index": 0,
            "finish_reason": finish,
            "stop_reason": reason,
            "token_ids": chunk.ids.tolist(),
            "weight_versions": [{"version": label, "start": 0, "end": total}] if finish else None,
            "logprobs": {"content": content},
        }


class Http:
    """Just enough HTTP/1.1."""

    def __init__(self, up: Upstream) -> None:
        self.up = up

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.split("\r\n")
            target = first.split(" ")[1]
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            path = target.partition("?")[0]
            self.up.calls[path] += 1
            try:
                await self.answer(path, json.loads(body) if body else {}, reader, writer)
            except ValueError as error:
                await self.send(writer, {"error": str(error)}, 400)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def send(self, writer, data, status: int = 200) -> None:
        content = data.encode() if isinstance(data, str) else json.dumps(data).encode()
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n".encode() + content)
        await writer.drain()

    async def answer(self, path: str, body: dict, reader, writer) -> None:
        up, engine = self.up, self.up.engine
        if path == "/inference/v1/generate":
            return await self.generate(body, reader, writer)
        if path == "/v1/completions":
            return await self.completions(body, reader, writer)
        if path == "/abort_requests":
            for name in body["request_ids"]:
                if (rest := engine.cancel(name)) is not None:
                    await up.queues[name].put(rest)
            return await self.send(writer, {"status": "aborted"})
        if path == "/collective_rpc":
            from gfcr.engine.contract import WeightsRef

            engine.load(WeightsRef(0, body["kwargs"]["weights_path"]))
            return await self.send(writer, {"results": [None]})
        if path == "/update_weight_version":
            up.label = body["new_version"]
            return await self.send(writer, {"success": True})
        if path == "/metrics":
            u = engine.usage()
            rows = {
                "vllm:generation_tokens_total": u.decoded,
                "vllm:generation_tokens_created": up.boot,
                "vllm:prompt_tokens_total": up.prompts,
                "vllm:prefix_cache_hits_total": u.cached,
                "vllm:num_requests_running": engine.live(),
                "vllm:num_requests_waiting": 0,
            }
            return await self.send(writer, "".join(f'{k}{{engine="0"}} {v!r}\n' for k, v in rows.items()))
        found = {
            "/v1/models": {"data": [{"id": up.name, "max_model_len": engine.max_length}]},
            "/server_info": {"vllm_config": "dtype=torch.float32, max_seq_len=128"},
            "/weight_info": {"weight_version": up.label},
            "/version": {"version": "front"},
            "/health": {},
            "/pause": {"status": "paused"},
            "/resume": {"status": "resumed"},
            "/reset_prefix_cache": {"success": True},
        }.get(path)
        return await self.send(
            writer, found if found is not None else {"error": "not found"}, 200 if found is not None else 404
        )

    async def generate(self, body: dict, reader, writer) -> None:
        up, params, ids = self.up, body["sampling_params"], body["token_ids"]
        if max(ids) >= 37:
            raise ValueError(f"Token id {max(ids)} is out of vocabulary")
        name, label = f"generate-tokens-{body['request_id']}", up.label
        up.spec[name] = params
        queue = up.submit(name, ids, params)
        if body.get("stream"):
            return await self.stream(name, queue, len(ids), label, reader, writer)
        chunk = await queue.get()
        more = {"prompt_logprobs": up.prompt_logprobs(ids)} if "prompt_logprobs" in params else {}
        tops = None
        if params.get("logprobs"):
            law = up.law(ids, params["temperature"], range(37))
            best = sorted(law, key=lambda t: -law[t])[: params["logprobs"]]
            tops = [{"token_id": t, "logprob": law[t]} for t in best]
        choice = up.choice(chunk, name, len(chunk.ids), label, tops)
        await self.send(
            writer, {"request_id": name, "choices": [choice], "usage": up.usage(name, len(ids), len(chunk.ids)), **more}
        )

    async def stream(self, name: str, queue: asyncio.Queue, prompt: int, label: str, reader, writer) -> None:
        writer.write(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        gone = asyncio.create_task(hung_up(reader))
        total = 0

        def event(choices: list) -> bytes:
            data = {"request_id": name, "choices": choices, "usage": self.up.usage(name, prompt, total)}
            return b"data: " + json.dumps(data).encode() + b"\n\n"

        while True:
            got = asyncio.create_task(queue.get())
            await asyncio.wait([gone, got], return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                got.cancel()
                self.up.engine.cancel(name)
                return
            chunk = got.result()
            total += len(chunk.ids)
            writer.write(event([self.up.choice(chunk, name, total, label)]))
            await writer.drain()
            if chunk.stop is not None:
                break
        writer.write(event([]) + b"data: [DONE]\n\n")
        await writer.drain()
        gone.cancel()

    async def completions(self, body: dict, reader, writer) -> None:
        up = self.up
        prompts = body["prompt"]
        text = isinstance(prompts, str)
        if text:
            prompts = [up.encode(prompts)]
        elif isinstance(prompts[0], int):
            prompts = [prompts]
        choices, sampled = [], 0
        up.calls["completions"] += 1
        for i, ids in enumerate(prompts):
            name = f"cmpl-{up.calls['completions']}-{i}-{time.monotonic_ns()}"
            up.spec[name] = body
            parts = []
            queue = up.submit(name, list(ids), {"stop_token_ids": [2], **body})
            while not parts or parts[-1].stop is None:
                parts.append(await queue.get())
            got = [int(t) for c in parts for t in c.ids]
            values = [float(v) for c in parts for v in c.logprobs]
            sampled += len(got)
            wanted = body.get("logprob_token_ids") or range(37)
            law = up.law(list(ids), body["temperature"], wanted) if body.get("logprobs") else {}
            last = up.choice(parts[-1], name, 0, "")
            choices.append(
                {
                    "index": i,
                    "text": up.decode(got, skip_special_tokens=True),
                    "finish_reason": last["finish_reason"],
                    "stop_reason": last["stop_reason"],
                    "logprobs": {"token_logprobs": values, "top_logprobs": [{f"token_id:{t}": v for t, v in law.items()}]},
                    **({"token_ids": got, "prompt_token_ids": list(ids)} if not text and body.get("return_token_ids") else {}),
                }
            )
        usage = {"prompt_tokens": sum(map(len, prompts)), "completion_tokens": sampled}
        await self.send(writer, {"id": "x", "choices": choices, "usage": usage})


async def hung_up(reader: asyncio.StreamReader) -> None:
    """Returns when the other side has gone."""
    with suppress(ConnectionError):
        await reader.read()


async def serve(up: Upstream, port: int, parent: int) -> None:
    server = await asyncio.start_server(Http(up).serve, "127.0.0.1", port, backlog=512)
    print(json.dumps([os.getpid(), server.sockets[0].getsockname()[1]]), flush=True)
    sampling = asyncio.create_task(up.run())
    while os.getppid() == parent and not sampling.done():
        await asyncio.sleep(0.5)


def main(model: str) -> None:
    import torch

    from gfcr.engine.embedded import EmbeddedEngine  # noqa: F401
    from gfcr.engine.models import load_model, load_tokenizer, model_path

    torch.set_num_threads(1)
    place = model_path(model)
    module, tokenizer = load_model(place), load_tokenizer(place)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    parent = os.getpid()
    for line in sys.stdin:
        if os.fork() == 0:
            order = json.loads(line)
            asyncio.run(serve(Upstream(module, tokenizer, order["raw"], order["slow"]), order["port"], parent))
            os._exit(0)


@cache
def nursery(model: str) -> subprocess.Popen:
    """The process that has the model and forks servers."""
    environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    made = subprocess.Popen(
        [sys.executable, __file__, model], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(made.kill)
    return made


class Front:
    """A server as a process of its own; `kill` is SIGKILL."""

    def __init__(self, model: str = "lab", raw: bool = False, slow: float = 0.0) -> None:
        """`slow`: seconds it rests after each token."""
        self.model, self.raw, self.slow, self.port, self.pid = model, raw, slow, 0, 0
        self.start()

    def start(self) -> None:
        """Also again, at the same port, with the weights it began with."""
        process = nursery(self.model)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"raw": self.raw, "slow": self.slow, "port": self.port}) + "\n")
        process.stdin.flush()
        self.pid, self.port = json.loads(process.stdout.readline())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """Once; a killed one is gone when this returns."""
        if not self.pid:
            return
        os.kill(self.pid, signal.SIGKILL)
        for _ in range(1000):
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                break
            time.sleep(0.01)
        self.pid = 0

    def sampled(self) -> int:
        """Its own count of sampled tokens."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as reply:
            text = reply.read().decode()
        return sum(
            int(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("vllm:generation_tokens_total")
        )


if __name__ == "__main__":
    main(sys.argv[1])

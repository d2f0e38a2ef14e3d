"""A user's own HTTP endpoint as a verifier.

    POST url   {"id", "task": {...}, "text", "reference", "meta", "stop"}
    200        {"score": 0.5, "correct": false, "evidence": "...", "answer": "..."}, or a number, or true or false, or null

Invariants: one deadline per judgement, with all its attempts, that neither a slow name server nor a reply that comes byte by byte can
stretch (`bounded`); what fails (no connection, a time-out, a status other than 200, no JSON, NaN, a body too long, a redirect) makes
the answer UNSCORABLE with the reason, and never reward 0; attempts are bounded and carry the same `id`; values of secret headers are
read from the environment, are in no recipe and no run directory, and are taken out of evidence.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from gfcr.context import Build
from gfcr.errors import ConfigError, MissingExtra
from gfcr.filter.verifiers.said import RightAt, said, shown
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Status, StopReason, Task, Verdict
from gfcr.types.task import messages_to_json

if TYPE_CHECKING:
    import httpx2

LONGEST_EVIDENCE = 1000
"""Characters of an endpoint's evidence that are kept."""
PAUSE = 0.2
"""Seconds before the second attempt; each later pause is twice as long."""
SLACK = 5.0
"""Seconds within which the event loop answers, unless it is stuck."""
MOST_WAITS = 10_000
"""Deadlines that a judgement may wait for others."""
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that may pass."""
_OURS = (StopReason.CANCELLED, StopReason.PARKED, StopReason.FAILED)


class _NoVerdict(Exception):
    """Why there is none; `again`: another attempt may help."""

    def __init__(self, why: str, again: bool = False) -> None:
        super().__init__(why)
        self.again = again


@method("http", Slot.VERIFIER, title="your own HTTP endpoint", criterion="reliability", faithfulness=Faithfulness.OURS)
class Http:
    """Asks an endpoint: JSON in, JSON out."""

    class Settings(FrozenModel):
        url: str
        """Where to POST: http:// or https://, without a user name or password in it."""
        seconds: float = Field(10.0, gt=0, le=3600)
        """Deadline of one judgement, all attempts and pauses together."""
        retries: int = Field(2, ge=0, le=10)
        """Attempts after the first one, where no connection came about or the status may pass (408, 425, 429, 5xx)."""
        concurrency: int = Field(16, ge=1, le=1024)
        """Judgements at once."""
        headers: dict[str, str] = Field(default_factory=dict)
        """Sent with each request, and recorded with the recipe: no secrets here."""
        secret_headers: dict[str, str] = Field(default_factory=dict)
        """Header -> name of the environment variable that holds its whole value, e.g. `Authorization = "GRADER_TOKEN"`."""
        right_at: RightAt = 1.0
        """A score of at least this is right, where the endpoint does not say `correct`; "never": scores say nothing about it."""
        version: str = "1"
        """Of the endpoint: change it when its verdicts change, so that nothing old is taken for new."""
        max_bytes: int = Field(65_536, ge=16)
        """Longest reply."""
        environment: Literal["ignore", "use"] = "ignore"
        """Whether proxies, certificates and netrc of the environment are used."""

    name, bounded, cost = "http", True, 0.1

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings, self.version = settings, settings.version
        parts = urlsplit(settings.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"filter.verifiers 'http': url = {settings.url!r}", "give an http:// or https:// address")
        if parts.username or parts.password:
            raise ConfigError(
                "filter.verifiers 'http': the url holds a user name or password, which would be recorded with the run",
                "put it into an environment variable and name that in secret_headers",
            )
        _client_library()
        self._secrets()
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx2.AsyncClient | None = None
        self._room: asyncio.Semaphore | None = None

    def _secrets(self) -> dict[str, str]:
        """Header -> value. Raises ConfigError for a variable that is not set."""
        if unset := [name for name in self.settings.secret_headers.values() if not os.environ.get(name)]:
            raise ConfigError(
                f"filter.verifiers 'http': the environment variable {unset[0]!r} is not set", "set it to the header's value"
            )
        return {header: os.environ[name] for header, name in self.settings.secret_headers.items()}

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        return self.judge_many([(task, text, stop)])[0]

    def judge_many(self, cases: Sequence[tuple[Task, str, StopReason]]) -> list[Verdict]:
        """Verdicts in order; up to `concurrency` requests at once, each with its own deadline."""
        futures: list[Future[Verdict] | Verdict] = []
        for task, text, stop in cases:
            if stop in _OURS:
                futures.append(self._unscorable(f"ended by us ({stop}): nobody knows what would have come"))
                continue
            try:
                body = request_body(task, text, stop)
            except (TypeError, ValueError) as error:
                futures.append(self._unscorable(f"the task cannot be sent as JSON: {error}"))
                continue
            futures.append(asyncio.run_coroutine_threadsafe(self._judged(body), self._running()))
        return [f if isinstance(f, Verdict) else self._result(f) for f in futures]

    def _result(self, future: Future[Verdict]) -> Verdict:
        """What the loop says: each judgement has its deadline there, so this only waits while others are served."""
        try:
            for _ in range(MOST_WAITS):
                try:
                    return future.result(self.settings.seconds + SLACK)
                except TimeoutError:  # others before it, or a loop that is stuck
                    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._running()).result(SLACK)
            raise TimeoutError("it never came to its turn")
        except Exception as error:  # our own fault says nothing about the policy
            future.cancel()
            return self._unscorable(self._clean(f"{type(error).__name__}: {error}"))

    async def _judged(self, body: bytes) -> Verdict:
        assert self._room is not None
        async with self._room:
            started = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(self.settings.seconds):
                    verdict = await self._attempts(body)
            except TimeoutError:
                verdict = self._unscorable(f"no verdict within {self.settings.seconds:g} s")
            except _NoVerdict as error:
                verdict = self._unscorable(self._clean(str(error)))
            seconds = asyncio.get_running_loop().time() - started
        return replace(verdict, evidence=self._clean(verdict.evidence), seconds=seconds)

    async def _attempts(self, body: bytes) -> Verdict:
        why = ""
        for attempt in range(self.settings.retries + 1):
            if attempt:
                await asyncio.sleep(PAUSE * 2 ** (attempt - 1))
            try:
                return said(_parsed(await self._post(body)), self.name, self.version, self.settings.right_at)
            except _NoVerdict as error:
                why = str(error)
                if not error.again:
                    raise
        tries = self.settings.retries + 1
        raise _NoVerdict(f"{why} ({tries} attempt{'s' if tries > 1 else ''})")

    async def _post(self, body: bytes) -> bytes:
        """The reply's body. Raises _NoVerdict."""
        import httpx2

        assert self._client is not None
        try:
            async with self._client.stream("POST", self.settings.url, content=body) as reply:
                if reply.is_redirect:
                    raise _NoVerdict(f"status {reply.status_code}: redirects are not followed")
                if reply.status_code != 200:
                    raise _NoVerdict(f"status {reply.status_code}", again=reply.status_code in _AGAIN)
                if reply.headers.get("content-encoding", "identity") != "identity":
                    raise _NoVerdict("the reply is compressed, which was not asked for")
                chunks, size = [], 0
                async for chunk in reply.aiter_raw():
                    size += len(chunk)
                    if size > self.settings.max_bytes:
                        raise _NoVerdict(f"a reply of more than {self.settings.max_bytes} bytes")
                    chunks.append(chunk)
                return self._clean_bytes(b"".join(chunks))
        except httpx2.HTTPError as error:
            raise _NoVerdict(f"no reply: {type(error).__name__}: {error}", again=True) from error

    def _running(self) -> asyncio.AbstractEventLoop:
        """The event loop of this verifier, in a thread of its own, and its client; started with the first judgement."""
        with self._lock:
            if self._loop is None:
                import httpx2

                loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(loop,), name="gfcr-http", daemon=True).start()
                own = self.settings
                headers = {"accept": "application/json", "accept-encoding": "identity", "content-type": "application/json"}

                async def client() -> tuple[httpx2.AsyncClient, asyncio.Semaphore]:
                    made = httpx2.AsyncClient(
                        headers={"user-agent": "gfcr", **headers, **own.headers, **self._secrets()},
                        timeout=own.seconds,
                        limits=httpx2.Limits(max_connections=own.concurrency),
                        follow_redirects=False,
                        trust_env=own.environment == "use",
                    )
                    return made, asyncio.Semaphore(own.concurrency)

                self._client, self._room = asyncio.run_coroutine_threadsafe(client(), loop).result(30.0)
                self._loop = loop
            return self._loop

    def _hidden(self) -> list[str]:
        """What no evidence may show: values of secret headers, and what follows a word in them (`Bearer xyz`, and the xyz alone)."""
        values = [os.environ.get(name, "") for name in self.settings.secret_headers.values()]
        return [part for value in values for part in (value, value.rpartition(" ")[2]) if len(part) > 3]

    def _clean(self, text: str) -> str:
        for part in self._hidden():
            text = text.replace(part, "***")
        return text if len(text) <= LONGEST_EVIDENCE else text[: LONGEST_EVIDENCE - 3] + "..."

    def _clean_bytes(self, body: bytes) -> bytes:
        """The reply as it may be told, before anything is cut out of it."""
        for part in self._hidden():
            body = body.replace(part.encode(), b"***")
        return body

    def _unscorable(self, why: str) -> Verdict:
        return Verdict(self.name, self.version, Status.UNSCORABLE, evidence=why)

    def close(self) -> None:
        """End the connections and the thread; a later judgement starts them again."""
        with self._lock:
            loop, client = self._loop, self._client
            self._loop = self._client = self._room = None
        if loop is None or client is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(client.aclose(), loop).result(SLACK)
        finally:
            loop.call_soon_threadsafe(loop.stop)

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings, "version": self.version}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def request_body(task: Task, text: str, stop: StopReason) -> bytes:
    """What is sent, as JSON. `id` is a digest of the rest: the same judgement, the same id. Raises TypeError or ValueError for a task
    that is no JSON data."""
    prompt = task.prompt if isinstance(task.prompt, str) else messages_to_json(task.prompt)
    data = {
        "task": {
            "id": task.id,
            "domain": task.domain,
            "category": task.category,
            "prompt": prompt,
            "environment": dict(task.environment),
        },
        "text": text,
        "reference": task.reference,
        "meta": dict(task.meta),
        "stop": str(stop),
    }
    digest = blake2b(json.dumps(data, allow_nan=False, sort_keys=True).encode(), digest_size=12).hexdigest()
    return json.dumps({"id": digest, **data}, allow_nan=False).encode()


def _parsed(body: bytes) -> Any:
    """The reply's value. Raises _NoVerdict for what is no JSON, NaN and infinity included."""
    try:
        return json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # bad UTF-8 and bad JSON are ValueErrors
        raise _NoVerdict(f"the reply is no JSON ({error}): {shown(body)}") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _client_library() -> None:
    try:
        import httpx2  # noqa: F401
    except ImportError:
        raise MissingExtra("httpx2", "http", "the verifier 'http'") from None

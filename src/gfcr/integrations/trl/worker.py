"""A rollout worker for TRL's AsyncGRPOTrainer, with gfcr's rounds and engine in place of a vLLM server.

    worker = GfcrRolloutWorker("four_modules")
    trainer = AsyncGRPOTrainer(worker.model_path, args=async_grpo_config("four_modules", "out"), train_dataset=worker.dataset,
                               rollout_worker=worker, weight_transfer=worker, callbacks=[worker.callback])

The object is both TRL's `RolloutWorkerProtocol` and its `WeightTransferProtocol`. A round runs when the trainer asks for a sample
and none is left (`background=False`), or in a thread of its own, one round ahead (`background=True`).

Invariants: every sample names the version of the weights the engine answered with; samples leave in the order of their rounds, each
once; a round is durable before its samples leave, and after a kill the samples go on behind the last one trained.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import TrainerCallback
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from gfcr.build import RolloutParts, model_path, refuse, rollout_parts
from gfcr.engine.models import load_model, load_tokenizer
from gfcr.errors import ConfigError
from gfcr.generate.render import TokenizerRenderer
from gfcr.integrations.carry import foreign_recipe, refuse_batch
from gfcr.integrations.carry import refuse as refuse_needs
from gfcr.integrations.rounds import Fed, Rounds
from gfcr.integrations.trl.collate import trainable
from gfcr.integrations.trl.cpu import adapt_attention, adapt_constructor
from gfcr.integrations.trl.exporters import WORKER
from gfcr.integrations.trl.tasks import task_dataset
from gfcr.integrations.weights import twin_engine
from gfcr.recipe import Recipe
from gfcr.task_sets import load_tasks
from gfcr.types import Batch


class GfcrRolloutWorker:
    """Rounds as a stream of RolloutSamples."""

    def __init__(
        self,
        recipe: str | Recipe,
        seed: int = 0,
        model: str | None = None,
        run_dir: str | Path | None = None,
        background: bool = False,
        any_environment: bool = False,
    ) -> None:
        """`model`: directory of the model the trainer gets, by default the recipe's; `run_dir`: where the rounds are kept, None = nowhere,
        and no resume. Raises ConfigError for a recipe that needs what a RolloutSample has no field for."""
        self.recipe = foreign_recipe(recipe)
        refuse(self.recipe)
        refuse_needs(self.recipe, WORKER)
        adapt_constructor()
        place = model_path(self.recipe.model.path) if model is None else Path(model)
        self.model_path = str(place)
        """For the trainer's `model`."""
        loaded = load_tasks(self.recipe.tasks)
        self.dataset: Dataset = task_dataset(loaded.tasks)
        """For the trainer's `train_dataset`, which it wants; the rounds choose tasks themselves."""
        tokenizer = load_tokenizer(place)
        module = load_model(place, "cpu", "float32")
        engine = twin_engine(self.recipe, module, TokenizerRenderer(tokenizer).decoder())
        self.parts: RolloutParts = rollout_parts(self.recipe, seed, loaded, tokenizer, engine, module)
        self._path, self._any_environment, self.background = run_dir, any_environment, background
        self.rollout_buffer: Any = _Buffer(self)
        self.metrics_queue: Any = queue.Queue()
        self.callback = _Progress(self)
        """For the trainer's `callbacks`: ends the run with the recipe's budget, and finds the place to resume at."""
        self.rounds: Rounds | None = None
        self.pushed = 0
        """Samples handed to the buffer, those before a resume included."""
        self.ended = ""
        """Why there are no more samples; empty while there are."""
        self._first = 0
        """Samples to skip because they were trained before the resume."""
        self._weights: dict[str, Any] | None = None
        self._version = self._offset = 0
        """TRL's count of syncs, which starts anew with a resume; what to add for the run's own count."""
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping, self._beat = False, time.monotonic()
        self._error: BaseException | None = None

    # ---- TRL's weight transfer ---------------------------------------------------------------------------------

    def init_weight_transfer(self) -> None:
        """Nothing to set up: trainer and engine share a process."""

    def pause(self) -> None:
        """Nothing to pause: a round ends under the weights it began with, and its samples say which."""

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        """Keep a copy for the next round."""
        copies = {name: tensor.detach().clone() for name, tensor in iterator}
        with self._lock:
            self._weights = copies

    def resume(self) -> None:
        """See `pause`."""

    def destroy(self) -> None:
        """Nothing is held."""

    # ---- TRL's rollout worker ----------------------------------------------------------------------------------

    def start(self) -> None:
        adapt_attention()
        if self.background and self._thread is None:
            self._thread = threading.Thread(target=self._work, name="gfcr-rounds", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()
        else:
            self._close()

    def update_model_version(self, model_version: int) -> None:
        with self._lock:
            self._version = model_version
            self._lock.notify_all()

    def check_health(self, stale_after_s: float) -> None:
        if self._error is not None:
            raise self._error
        if self.background and time.monotonic() - self._beat > stale_after_s:
            raise RuntimeError(f"the rounds' thread has shown no sign of life for {stale_after_s:g} s")

    # ---- rounds to samples -------------------------------------------------------------------------------------

    def skip(self, samples: int, steps: int) -> None:
        """Go on behind the first `samples` samples, trained in `steps` optimiser steps before."""
        self._first, self._offset = samples, steps

    def produce(self) -> list[RolloutSample]:
        """One round's samples; none when the run is over."""
        self._beat = time.monotonic()
        if self.rounds is None:
            self.rounds = Rounds(self.parts, self._path, self._any_environment, any_weights=True)
        with self._lock:
            weights, self._weights = self._weights, None
            version = self._version
        if weights is not None:
            self.rounds.publish(version + self._offset, weights)
        fed = self.rounds.next()
        if fed is None:
            self.ended = self.rounds.ended
            return []
        refuse_batch(fed.batch, WORKER)
        out = samples(fed, version, self.parts)
        before, self.pushed = self.pushed, self.pushed + len(out)
        self._measure(fed)
        return out[max(0, self._first - before) :]

    def _measure(self, fed: Fed) -> None:
        for name in ("tokens_generated", "tokens_discarded", "share_mixed", "reward_mean", "injected", "rows"):
            if (value := fed.metrics.get(name)) is not None:
                self.metrics_queue.put({f"gfcr/{name}": float(value)})

    def _work(self) -> None:
        """The thread: one round ahead of the trainer."""
        try:
            while not self._stopping and not self.ended:
                with self._lock:
                    while not self._stopping and (self._version == 0 or self.rollout_buffer.qsize() > 0):
                        self._lock.wait(0.2)
                        self._beat = time.monotonic()
                if not self._stopping:
                    self.rollout_buffer.extend(self.produce())
        except BaseException as error:
            self._error = error
        finally:
            self._close()  # in the thread that opened the database

    def _close(self) -> None:
        if self.rounds is not None:
            self.rounds.close()
            self.rounds = None


def samples(fed: Fed, version: int, parts: RolloutParts) -> list[RolloutSample]:
    """The batch's rows with a loss as TRL's samples; `version`: TRL's name of the weights."""
    batch, decode = fed.batch, parts.renderer.decoder()
    out = []
    for row in trainable(batch):
        start, stop = int(batch.offsets[row]), int(batch.offsets[row + 1])
        ids, mask = batch.input_ids[start:stop].astype(np.int64), batch.rl_mask[start:stop]
        first = int(np.argmax(mask))
        values = (batch.advantages * batch.rl_weights)[start:stop][mask]
        out.append(
            RolloutSample(
                prompt=[{"role": "user", "content": decode(ids[:first])}],
                completion=[{"role": "assistant", "content": decode(ids[mask])}],
                input_ids=ids,
                completion_mask=mask.astype(np.int64),
                old_log_probs=np.where(mask, _old(batch)[start:stop], 0.0).astype(np.float32),
                advantage=float(values[0]),
                model_version=version,
                group_id=fed.round * 1_000_000 + int(batch.groups[row]),
                metrics={f"rewards/{name}": float(rewards[row]) for name, rewards in batch.rewards.items()},
                enqueued_at=time.time(),
            )
        )
    return out


def _old(batch: Batch) -> np.ndarray:
    """float32[N]: log-probabilities the ratio is taken to: of the sampling law, or recomputed for tokens it does not know."""
    old = np.where(np.isnan(batch.behaviour), batch.proximal, batch.behaviour)
    if np.isnan(old[batch.rl_mask]).any():
        raise ConfigError(
            f"round {batch.round} has loss tokens without log-probabilities, which AsyncGRPO's ratio needs",
            "recompute them (an augment with rescore), or use GfcrGRPOTrainer, which computes them itself",
        )
    return old


class _Buffer:
    """The queue TRL's trainer drains: `get` makes a round when it is empty, unless a thread does."""

    def __init__(self, worker: GfcrRolloutWorker) -> None:
        self._worker = worker
        self._queue: queue.Queue[RolloutSample] = queue.Queue()
        self._last: RolloutSample | None = None

    def get(self, block: bool = True, timeout: float | None = None) -> RolloutSample:
        worker = self._worker
        while not worker.background and self._queue.empty() and not worker.ended:
            self.extend(worker.produce())
        if self._queue.empty() and worker.ended:
            return self._filler()
        found = self._queue.get(block, timeout)
        with worker._lock:
            worker._lock.notify_all()
        self._last = found
        return found

    def _filler(self) -> RolloutSample:
        """TRL's loader reads one batch ahead of the training and must not wait for ever: a sample without a gradient."""
        if not self._worker.callback.present or self._last is None:
            raise RuntimeError(
                f"the rounds are over ({self._worker.ended}); pass callbacks=[worker.callback], so that training ends with them"
            )
        last = self._last
        return RolloutSample(
            last.prompt,
            last.completion,
            last.input_ids,
            last.completion_mask,
            last.old_log_probs,
            0.0,
            last.model_version,
            -1,
            {},
        )

    def extend(self, found: list[RolloutSample]) -> None:
        for sample in found:
            self._queue.put(sample)

    def put_nowait(self, sample: RolloutSample) -> None:
        self._queue.put_nowait(sample)

    def qsize(self) -> int:
        return self._queue.qsize()


class _Progress(TrainerCallback):  # type: ignore[misc]
    """Where the trainer is in the stream of samples."""

    def __init__(self, worker: GfcrRolloutWorker) -> None:
        self.worker, self.present = worker, False

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.present = True
        if args.token_budget is None or args.token_budget > 0:
            raise ConfigError(
                f"args.token_budget = {args.token_budget}: batches of varying counts leave no place to resume at, and None asks a vLLM server",
                "set token_budget=0 (async_grpo_config does), and per_device_train_batch_size",
            )
        self.worker.skip(state.global_step * self._step(args), state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.worker.ended and state.global_step * self._step(args) >= self.worker.pushed:
            control.should_training_stop = True

    @staticmethod
    def _step(args: Any) -> int:
        """Samples of an optimiser step."""
        return int(args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size)

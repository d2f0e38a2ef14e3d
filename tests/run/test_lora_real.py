"""LoRA on the real loop: published weights arrive and are proven to, and a resumed run is bit-equal."""

from __future__ import annotations

from pathlib import Path

import pytest
import real_runs

from gfcr.report import write_report
from gfcr.run.directory import RunDirectory
from gfcr.run.publish import StaleWeights
from gfcr.run.session import Session
from gfcr.train.lora import Adapter

LORA = ("train.lora={r=4, alpha=8.0}", "budget.steps=4", "run.checkpoint_every=3", "train.kl=0.05", "train.lr=5e-3")


class Cut(Exception):
    """Ends a run after a commit."""


def test_an_adapter_run_is_resumed_bit_equal_and_every_publication_is_proven(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for path in (whole, cut):
        path.mkdir()
    assert real_runs.create(whole / "run", *LORA).run() == "steps"
    session = real_runs.create(cut / "run", *LORA)

    def stop(row: dict) -> None:
        if row["step"] == 2:
            raise Cut

    session.progress = stop
    with pytest.raises(Cut):
        session.run()
    assert Session.resume(cut / "run").run() == "steps"
    runs = [RunDirectory.read(path / "run") for path in (whole, cut)]
    rows = [run.metrics() for run in runs]
    names = ("published_fingerprint", "published_gap", "train_loss", "train_kl", "heldout_accuracy", "tokens_scored")
    for one, two in zip(*rows, strict=True):
        assert [one.get(n) for n in names] == [two.get(n) for n in names]
    files = [{p.name: p.read_bytes() for p in sorted((path / "run" / "checkpoints" / "4").iterdir())} for path in (whole, cut)]
    assert files[0] == files[1]
    assert {"adapter_model.safetensors", "adapter_config.json", "trainer.safetensors"} == files[0].keys()
    trained = [row for row in rows[0] if row.get("train_updates")]
    assert len(trained) >= 3
    assert len({row["published_fingerprint"] for row in trained}) == len(trained)  # other weights answer after every update
    assert max(row["published_gap"] for row in rows[0]) < 1e-4
    for run in runs:
        assert list(run.differences()) == []
        run.close()
    assert write_report(whole / "run").stat().st_size > 0


def test_42_an_adapter_that_never_reaches_the_engine_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """User ask 42: all metrics look plausible, the engine samples from the base for months."""
    session = real_runs.create(tmp_path / "run", *LORA)
    merged = Adapter.merged

    def base_only(self: Adapter) -> dict:
        return {
            name: self.layers[stem].base_layer.weight if (stem := name.removesuffix(".weight")) in self.layers else tensor
            for name, tensor in merged(self).items()
        }

    monkeypatch.setattr(Adapter, "merged", base_only)
    with pytest.raises(StaleWeights, match="the weights did not arrive"):
        session.run()
    assert session.step <= 2


def test_full_weights_that_stay_behind_end_the_run_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = real_runs.create(tmp_path / "run", "budget.steps=4", "train.lr=5e-3")
    first = session.parts.trainer.weights()
    monkeypatch.setattr(session.parts.trainer, "weights", lambda: first)
    with pytest.raises(StaleWeights):
        session.run()

"""The command line in this process, as tests of the real loop use it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner


@pytest.fixture
def gfcr_cli() -> Callable[..., str]:
    """`gfcr_cli(code, *arguments)`: what the command says; fails on another exit code, a traceback, or a flood of lines."""
    import torch

    from gfcr.cli.main import app

    torch.set_num_threads(1)

    def call(code: int, *arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments))
        said = result.output
        assert result.exit_code == code, said
        assert "Traceback" not in said and (code == 0 or len(said.splitlines()) <= 10), said
        return said

    return call

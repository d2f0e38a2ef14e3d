"""The command line in this process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gfcr
from gfcr.cli.main import app

# Child processes find the package that is under test, installed or not.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(gfcr.__file__).parents[1]), os.environ.get("PYTHONPATH")]))


class Cli:
    """Runs a command; stdout, stderr and the exit code are kept apart."""

    def __call__(self, *args: object, code: int = 0) -> Any:
        self.result = CliRunner().invoke(app, [str(a) for a in args])
        assert self.result.exit_code == code, f"{self.result.output}\n{self.result.exception}"
        return self.result

    def json(self, *args: object, code: int = 0) -> dict[str, Any]:
        return json.loads(
            self(*args, "--json", code=code).stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")
        )

    def error(self, *args: object) -> str:
        """What a command that must fail says, on one line; nothing on stdout, no traceback."""
        result = self(*args, code=1)
        assert result.stdout == "" and "Traceback" not in result.stderr and "remedy:" in result.stderr
        return " ".join(result.stderr.split())


@pytest.fixture
def cli() -> Cli:
    return Cli()

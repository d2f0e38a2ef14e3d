"""One server for all tests that leave it as it was, and the helpers beside this file."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def front():
    """The lab model behind HTTP."""
    from front import Front

    server = Front()
    yield server
    server.kill()

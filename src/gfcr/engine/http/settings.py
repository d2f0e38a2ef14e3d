"""Settings of the engines over HTTP. Invariants: no secret is a setting (a key is read from the environment variable that is named
here); every wait and every repetition has a bound."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from gfcr.settings import FrozenModel


class HttpSettings(FrozenModel):
    """Where the servers are, and how much patience there is with them."""

    urls: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    """Addresses of the servers, `http://host:port`, without a path. Several share the work; all must serve the same model."""
    model: str | None = None
    """Name under which the servers serve the model; None = the only one they have."""
    key_variable: str | None = None
    """Environment variable that holds the bearer key; None = none is sent."""
    weights: str | None = None
    """Folder for published weights, which every server must see under the same path; None = a new one in this machine's folder for
    temporary files, removed at the end."""
    token_ids: bool = True
    """Whether the endpoint takes and gives token ids. false (for `openai` only): text in, text out; its answers are for evaluation."""
    attempts: int = Field(6, ge=1, le=20)
    """Times one request is sent before it counts as failed."""
    pause: float = Field(0.1, ge=0, le=60)
    """Seconds before the second attempt; each later pause is twice as long, up to 5."""
    seconds: float = Field(120.0, gt=0, le=3600)
    """Longest silence within a reply before it counts as lost."""
    outage: float = Field(300.0, gt=0, le=86_400)
    """Seconds within which a server that went away must be back and proven; and how long requests wait when none is left."""
    gap: float = Field(1e-3, gt=0)
    """Largest mean difference, in nats, of log-probabilities on the probe between servers, and of one before and after a restart.
    For half precisions raise it, for example to 0.1."""
    exclusive: bool = True
    """Nobody else uses the servers: their own counters then tell how many tokens were sampled that no reply brought, and a publication
    may abort what runs there."""

    @field_validator("urls")
    @classmethod
    def _addresses(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(f"{url!r} is no http:// or https:// address")
            if parts.username or parts.password:
                raise ValueError(
                    "an address holds a user name or password, which would be recorded with the run; use key_variable"
                )
        if len(set(urls)) < len(urls):
            raise ValueError("an address stands there twice")
        return tuple(url.rstrip("/") for url in urls)

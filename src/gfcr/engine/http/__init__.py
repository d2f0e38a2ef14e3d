"""Engines over HTTP: vLLM servers (trainable: ids, log-probabilities, weights) and OpenAI-compatible endpoints. Needs gfcr[http]."""

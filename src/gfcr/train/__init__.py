"""The reference trainer: settings (no torch), losses, log-probabilities, the optimiser step."""

"""The lab: register programs, a task that a model of 85 thousand parameters learns by RL on one CPU core in half a minute.

`language` defines the task, `verify` judges answers, `pools` ships frozen task sets, `tokenizer` the vocabulary,
`warmstart` makes the checkpoint that a run starts from. Importing this package does not import torch.
"""

from gfcr.domains.programs.language import Program, interpret, parse_answer, parse_prompt, reference_answer, sample_program
from gfcr.domains.programs.verify import ExactVerifier, FormatGate, ProgramSteps

__all__ = [
    "ExactVerifier",
    "FormatGate",
    "Program",
    "ProgramSteps",
    "interpret",
    "parse_answer",
    "parse_prompt",
    "reference_answer",
    "sample_program",
]

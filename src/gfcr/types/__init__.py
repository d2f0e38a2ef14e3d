"""The data that flows, nothing else."""

from gfcr.types.artifact import Artifact, ArtifactKind
from gfcr.types.batch import Batch, Normalise, PreferencePair, masked_mean, masked_sum
from gfcr.types.cost import COST_FIELDS, Cost
from gfcr.types.decision import Decision
from gfcr.types.group import Comparison, Credit, Drop, Group, GroupState, Member, Preference, Role
from gfcr.types.ids import derive_id, frozen_array, id_family
from gfcr.types.rollout import Node, Path, Rollout, Times, path_ids, path_length
from gfcr.types.segment import POLICY, LossRole, Sampling, Segment, SegmentKind, StopReason, TokenSource
from gfcr.types.signals import Signals, Span, Status, StepScore, Verdict
from gfcr.types.task import Message, Origin, Part, PartKind, Task, ToolCall

__all__ = [
    "COST_FIELDS",
    "POLICY",
    "Artifact",
    "ArtifactKind",
    "Batch",
    "Comparison",
    "Cost",
    "Credit",
    "Decision",
    "Drop",
    "Group",
    "GroupState",
    "LossRole",
    "Member",
    "Message",
    "Node",
    "Normalise",
    "Origin",
    "Part",
    "PartKind",
    "Path",
    "Preference",
    "PreferencePair",
    "Role",
    "Rollout",
    "Sampling",
    "Segment",
    "SegmentKind",
    "Signals",
    "Span",
    "Status",
    "StepScore",
    "StopReason",
    "Task",
    "Times",
    "TokenSource",
    "ToolCall",
    "Verdict",
    "derive_id",
    "frozen_array",
    "id_family",
    "masked_mean",
    "masked_sum",
    "path_ids",
    "path_length",
]

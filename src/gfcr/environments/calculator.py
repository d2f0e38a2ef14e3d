"""The calculator: exact arithmetic as a tool. Invariants: pure and quick; a value is exact or said to be none."""

from __future__ import annotations

from gfcr.context import Build
from gfcr.domains.answers import Extract, reference_answer
from gfcr.environments.arithmetic import BadExpression, evaluate, written
from gfcr.environments.tool import Result, Tool, ToolEnvironment, ToolSettings
from gfcr.filter.verifiers.answer import Answer
from gfcr.registry import Faithfulness, Slot, method
from gfcr.types import StopReason, Task, Verdict


@method(
    "calculator",
    Slot.ENVIRONMENT,
    title="calculator",
    criterion="reliability",
    faithfulness=Faithfulness.OURS,
    traits=("binary correctness", "tool calls"),
)
class Calculator(ToolEnvironment):
    """The tool `calculator(expression)` gives exact values of sums, products, quotients and powers. A turn without a call is the final
    answer, compared with the task's reference."""

    class Settings(ToolSettings):
        extract: Extract = Extract.LAST_NUMBER
        """Where the final answer stands in the last turn (as in the verifier `answer`)."""

    name, version, quick = "calculator", "1", True
    tool = Tool(
        "calculator",
        "expression",
        "Evaluates an arithmetic expression exactly.",
        "An expression with numbers, + - * / // % ** and parentheses, such as (12 + 30) * 7 / 3",
    )

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        super().__init__(settings)
        self._verifier = Answer(Answer.Settings(mode=settings.extract), build)  # type: ignore[arg-type]

    @classmethod
    def unjudged(cls, settings: Settings, task: Task) -> str:
        """Why no answer to this task could be judged; empty where one can."""
        return no_answer(task, settings.extract)

    def _begin(self, task: Task, seed: int) -> None:
        """Every task can be played; the seed changes nothing."""

    def _do(self, argument: str) -> Result:
        try:
            return Result(written(evaluate(argument)))
        except BadExpression as error:
            return Result(f"Error: {error}", "expression")

    def _judge(self, task: Task, answer: str) -> Verdict:
        return owned(self, self._verifier.judge(task, answer, StopReason.EOS))


def no_answer(task: Task, extract: Extract) -> str:
    """Why a task's reference is no final answer that `extract` could find; empty where it is one."""
    if task.reference is None:
        return "it has no reference"
    if reference_answer(task.reference, extract) is None:
        return f"its reference {str(task.reference)!r:.60} is not one number (extract = {str(extract)!r})"
    return ""


def owned(env: ToolEnvironment, verdict: Verdict) -> Verdict:
    """A verifier's verdict under the environment's name."""
    return Verdict(
        env.name,
        env.version,
        verdict.status,
        verdict.score,
        verdict.correct,
        verdict.evidence,
        answer=verdict.answer,
        seconds=verdict.seconds,
    )

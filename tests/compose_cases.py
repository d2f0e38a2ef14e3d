"""What the composition tests are made of: real methods, made ones with given traits, and the rules a combination breaks."""

from gfcr.compose import Facts, check
from gfcr.registry import Faithfulness, Method, Settings, Slot, find
from gfcr.train.settings import LossSettings, TrainSettings, ValueSettings


def made(slot, *traits, needs=(), name="made"):
    return Method(name, slot, name, "cost", Faithfulness.OURS, needs=frozenset(needs), traits=frozenset(traits)), Settings()


def real(slot, name, **settings):
    found = find(slot, name)
    return found, found.settings(**settings)


def rules(*methods, k=8, **facts):
    return [f.rule for f in check(Facts(methods, k, engine="test", **facts))]


GRPO, DR = real(Slot.CREDIT, "grpo"), real(Slot.CREDIT, "dr-grpo")
INFORMATIVE = real(Slot.SELECT, "informative")
SCORES = {"engine_features": frozenset({"score"})}
STORE = real(Slot.STORE, "correct")
PLUS = [real(Slot.CREDIT, "reinforce-pp"), real(Slot.CREDIT_BATCH, "whiten")]
GAE, PAIRS, RFT = real(Slot.CREDIT, "gae"), real(Slot.CREDIT, "pairs"), real(Slot.CREDIT, "rejection")
DPO, SFT = {"loss": LossSettings(kind="dpo")}, {"loss": LossSettings(kind="sft")}
CRITIC = {"train": TrainSettings(value=ValueSettings())}
WHOLE = {"admission_zero_variance": False}

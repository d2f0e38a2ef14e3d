"""Every loss through the trainer: gradients against finite differences, micro-batches, denominators, NaN outside the masks,
skipped steps, saving (batches of the wrong kind: test_train_refusals.py)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from objective_cases import SEQUENCE, critic, mixed, pairs, policy, taught, trainer
from train_cases import (
    batch_of,
    copy_weights,
    gradient,
    lab_model,
    paired,
    random_rows,
    relative,
    rewarded,
    same_weights,
    tiny_gpt2,
)

from gfcr.types.batch import Normalise

nan = float("nan")
VALUE = {"value": {"gamma": 0.95, "lam": 0.9, "clip": None, "coef": 0.5}}
# name -> (loss, train, batch maker, arguments of the batch)
KINDS = {
    "ppo": ({"kind": "ppo"}, {}, policy, {}),
    "cispo": ({"kind": "cispo", "cispo_high": 1.5}, {"kl": 0.1}, policy, {}),
    "gspo": ({"kind": "gspo"}, {"clip_low": 0.5, "clip_high": 0.9}, policy, SEQUENCE),
    "gspo-token": ({"kind": "gspo-token"}, {"clip_low": 0.5, "clip_high": 0.9}, policy, SEQUENCE),
    "gspo, constant": ({"kind": "gspo"}, {"ratio_base": "behaviour", "clip_low": 0.9}, policy, {"normalise": Normalise.CONSTANT, "constant": 9.0}),
    "sft": ({"kind": "sft"}, {}, taught, {}),
    "dpo": ({"kind": "dpo", "beta": 0.3, "label_smoothing": 0.1}, {}, pairs, {}),
    "dpo, means": ({"kind": "dpo", "beta": 2.0, "pair_length": "mean"}, {}, pairs, {}),
    "dpo, behaviour": ({"kind": "dpo", "pair_reference": "behaviour"}, {}, pairs, {}),
    "dpo, nll": ({"kind": "dpo", "beta": 0.3}, {}, mixed, {}),
    "ipo": ({"kind": "ipo", "beta": 0.5}, {}, pairs, {}),
    "critic": ({"kind": "ppo"}, VALUE, critic, {}),
    "critic, gspo-token": ({"kind": "gspo-token"}, VALUE, critic, SEQUENCE),
}  # fmt: skip


def moved(t):
    """A little away from the reference, and a value head that says something."""
    with torch.no_grad():
        for i, p in enumerate(t.parameters.values()):
            p += 0.05 * torch.cos(torch.arange(p.numel(), dtype=p.dtype) + i).view_as(p)
    return t


def detached_value(t, batch, kind):
    """For losses whose ratio is a constant to the gradient: sum(w c A logp) as a function of the weights, with the constants c
    of the weights now, worked out apart from the trainer."""
    base, mask = batch.proximal.astype(np.float64), batch.rl_mask
    worth = np.where(mask, batch.token_weights() * np.nan_to_num(batch.advantages) * np.nan_to_num(batch.rl_weights), 0.0)
    logs = np.where(mask, t._logps(t.policy, batch, mask) - base, 0.0)
    if kind == "cispo":
        constant = np.minimum(np.exp(logs), 1.5)
    else:
        row = batch.row_of_token()
        constant = np.exp(np.bincount(row, logs) / np.bincount(row, mask))[row]
        constant = np.where((worth < 0) & (constant < 0.5) | (worth > 0) & (constant > 1.9), 0.0, constant)
    assert (constant[mask] > 0).any() and not np.allclose(constant[mask], 1.0)
    return lambda: -float(np.nansum(worth * constant * t._logps(t.policy, batch, mask)))


@pytest.mark.parametrize("name", [name for name in KINDS if name != "critic, gspo-token"])
def test_trainer_gradient_against_finite_differences(name):
    """Whole path in float64, two micro-batches: batch -> model -> loss, on GPT-2 (whose norms keep float64)."""
    loss, train, make, shape = KINDS[name]
    batch = make(random_rows(4, seed=3, vocab=11, low=8, high=9, proximal=-2.2, reference=-2.0), **shape)
    detached = loss["kind"] in ("cispo", "gspo-token")
    t = moved(trainer(loss, train | ({"kl": 0.0} if detached else {}), tiny_gpt2(), dtype="float64", micro_tokens=16))
    whole = np.arange(4)
    batch, critic = t._criticise(batch)

    def value():
        return t._accumulate(batch, whole, batch.proximal.astype(np.float64), t._reference_logps(batch), critic)[0]

    exact = detached_value(t, batch, loss["kind"]) if detached else value
    checked = 0
    for key in ("transformer.wte.weight", "transformer.h.0.attn.c_attn.weight", "transformer.ln_f.bias", "value_head.weight"):
        if (parameter := t.parameters.get(key)) is None:
            continue
        t.optimizer.zero_grad()
        value()
        grad = parameter.grad.flatten().clone()
        at = int(grad.abs().argmax())
        found, step, flat = float(grad[at]), 1e-6, parameter.data.view(-1)
        old = float(flat[at])
        flat[at] = old + step
        high = exact()
        flat[at] = old - step
        low = exact()
        flat[at] = old
        assert abs(found) > 1e-6 and found == pytest.approx((high - low) / (2 * step), rel=1e-4), key
        checked += 1
    assert checked == 3 + (name == "critic")


@pytest.mark.parametrize("name", KINDS)
def test_micro_batches_change_nothing(name):
    loss, train, make, shape = KINDS[name]
    batch = make(random_rows(12, seed=1, proximal=-3.0), **shape)
    whole, one = gradient(moved(trainer(loss, train, micro_tokens=10**6)), batch)
    cut, two = gradient(moved(trainer(loss, train, micro_tokens=40)), batch)
    assert float(whole.norm()) > 1e-4
    assert relative(cut, whole) <= 1e-5
    assert two == pytest.approx(one, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("name", KINDS)
def test_nan_and_infinity_outside_the_masks_are_harmless(name):
    """A masked position may hold anything (0 * NaN is NaN: SkyRL#1633)."""
    loss, train, make, shape = KINDS[name]
    clean = make(random_rows(4, seed=3, reference=-3.0, proximal=-3.0), **shape)
    used = clean.rl_mask | (clean.ce_weights != 0) | (False if clean.pair_mask is None else clean.pair_mask)
    dirty = replace(
        clean,
        **{
            field: np.where(used, getattr(clean, field), poison).astype(np.float32)
            for field, poison in (("reference", nan), ("proximal", np.inf), ("behaviour", nan), ("advantages", -np.inf), ("rl_weights", nan))
        },
        token_rewards=None if clean.token_rewards is None else np.where(used, clean.token_rewards, np.inf).astype(np.float32),
    )  # fmt: skip
    a, b = moved(trainer(loss, train)), moved(trainer(loss, train))
    one, two = a.step(clean), b.step(dirty)
    assert one.updates == two.updates == 1 and np.isfinite(one.loss) and one.loss == two.loss
    assert same_weights(b, copy_weights(a))


@pytest.mark.parametrize("name", KINDS)
def test_non_finite_update_is_skipped(name):
    loss, train, make, shape = KINDS[name]
    t = moved(trainer(loss, train, minibatches=2))
    batch = make(random_rows(6, seed=3, reference=-3.0, proximal=-3.0), **shape)
    t.step(batch)
    before = {n: tensor.clone() for n, tensor in t.state_dict().items() if n != "counters"}
    handle = t.model.model.norm.register_forward_hook(lambda module, args, out: out * float("nan"))
    stats = t.step(batch)
    handle.remove()
    assert stats.updates == 0 and stats.loss is None and "update 1 of" in stats.skipped
    assert all(torch.equal(tensor, t.state_dict()[n]) for n, tensor in before.items())
    assert t.step(batch).skipped is None


@pytest.mark.parametrize("name", KINDS)
def test_save_and_load_continue_bit_equal(name, tmp_path):
    loss, train, make, shape = KINDS[name]
    batches = [make(random_rows(6, seed=s), **shape) for s in range(3)]
    a = trainer(loss, train, minibatches=2, epochs=2)
    a.step(batches[0])
    a.save(tmp_path)
    b = trainer(loss, train, lab_model(seed=9), minibatches=2, epochs=2)
    b.load(tmp_path)
    for batch in batches[1:]:
        one, two = a.step(batch), b.step(batch)
        assert (one.loss, one.grad_norm, one.tokens) == (two.loss, two.grad_norm, two.tokens)
    one, two = a.state_dict(), b.state_dict()
    assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)
    assert ("value.weight" in one) == ("value" in train)


def test_dpo_equals_its_formula_and_its_denominator_is_the_pairs_weight():
    """Computed apart from the trainer: log sigma(beta h), pairs weighted, over the minibatch."""
    rows = random_rows(4, seed=7)
    batch = pairs(rows)
    t = moved(trainer({"kind": "dpo", "beta": 0.3}, {}))

    def total(model, row):
        ids = torch.tensor(np.array(row["ids"]))[None]
        logs = torch.log_softmax(model(input_ids=ids).logits[0].double(), -1)
        return sum(logs[k - 1, ids[0, k]] for k in range(row["prompt"], ids.shape[1]))

    loss = torch.zeros((), dtype=torch.float64)
    for chosen, rejected, weight in ((0, 1, 1.0), (2, 3, 0.5), (0, 3, 2.0)):
        h = total(t.model, rows[chosen]) - total(t.model, rows[rejected])
        h = h - (total(t.reference, rows[chosen]) - total(t.reference, rows[rejected])).detach()
        loss = loss - weight / 3.5 * torch.nn.functional.logsigmoid(0.3 * h)
    loss.backward()
    expected = torch.cat([p.grad.double().flatten() for p in t.parameters.values()])
    t.optimizer.zero_grad(set_to_none=True)
    found, value = gradient(t, batch)
    assert value == pytest.approx(float(loss.detach()), rel=1e-5)
    assert relative(found, expected) < 1e-5


def test_dpo_raises_the_chosen_answer_against_the_rejected_one_and_says_so():
    batch = paired(random_rows(8, seed=2), [(0, 1), (2, 3), (4, 5), (6, 7)])
    t = trainer({"kind": "dpo", "beta": 0.5}, {"lr": 3e-3})
    first = t.step(batch)
    assert (
        first.loss == pytest.approx(np.log(2), rel=1e-5)
        and first.pairs == 4
        and first.pair_margin == pytest.approx(0, abs=1e-6)
    )
    assert first.rl_tokens == 0 and first.ratio is None and first.entropy is None and first.ess is None
    for _ in range(5):
        last = t.step(batch)
    assert last.pair_accuracy == 1.0 and last.pair_margin > 0.5 and last.loss < 0.5


@pytest.mark.parametrize("minibatches, epochs", [(2, 1), (3, 2), (99, 1)])
def test_pairs_are_never_torn_apart(minibatches, epochs):
    joined = [(0, 1), (1, 2), (4, 5), (6, 9)]
    rows = [
        r | {"ce_weights": 1.0 * (i in (3, 7)) * (np.arange(len(r["ids"])) > 2)} for i, r in enumerate(random_rows(10, seed=2))
    ]
    batch = paired(rows, joined)
    t = trainer({"kind": "dpo"}, {"minibatches": minibatches, "epochs": epochs})
    parts = t._minibatches(batch, np.array([0, 1, 2, 3, 4, 5, 6, 7, 9]))
    assert len(parts) == min(minibatches, 5) * epochs
    for part in parts:
        assert all((a in part) == (b in part) for a, b in joined)
    assert sorted(np.concatenate(parts)) == sorted([0, 1, 2, 3, 4, 5, 6, 7, 9] * epochs)
    assert t.step(batch).pairs == 4 * epochs


def test_rows_outside_the_pairs_take_no_part():
    rows = random_rows(6, seed=2)
    one, _ = gradient(trainer({"kind": "dpo"}, {}), paired(rows, [(0, 1)]))
    two, _ = gradient(trainer({"kind": "dpo"}, {}), paired(rows[:2], [(0, 1)]))
    assert torch.equal(one, two)


def test_sft_on_right_answers_raises_their_probability_only():
    rows = random_rows(4, seed=2)
    batch = batch_of(
        [r | {"rl_mask": False, "ce_weights": (i < 2) * (np.arange(len(r["ids"])) > 4.0)} for i, r in enumerate(rows)]
    )
    t = trainer({"kind": "sft"}, {"lr": 3e-3})
    first = t.step(batch)
    for _ in range(5):
        last = t.step(batch)
    assert first.nll == pytest.approx(first.loss, rel=1e-6) and last.nll < first.nll - 0.5 and last.rl_tokens == 0


def test_the_first_critic_says_nothing_and_advantages_are_whitened_returns():
    batch = rewarded(random_rows(3, seed=2), rewards=[1.0, 0.0, 0.0])
    t = trainer({"kind": "ppo"}, {"value": {"lam": 1.0}})
    advantages, critic = t._criticise(batch)[0].advantages, t._criticise(batch)[1]
    mask = batch.rl_mask
    returns = np.where(batch.row_of_token() == 0, 1.0, 0.0)[mask]
    assert critic.values[mask] == pytest.approx(np.zeros(mask.sum())) and critic.returns[mask] == pytest.approx(returns)
    assert advantages[mask] == pytest.approx((returns - returns.mean()) / returns.std(ddof=1), rel=1e-5)
    assert np.isnan(advantages[~mask]).all() and critic.explained == pytest.approx(0.0)


def test_the_critic_learns_what_answers_are_worth():
    rows = [
        r | {"ids": np.array([*([1 + 4 * (i % 2)] * 3), *r["ids"][3:]]), "prompt": 3}
        for i, r in enumerate(random_rows(16, seed=2))
    ]
    batch = rewarded(rows, rewards=[float(i % 2) for i in range(16)])
    t = trainer({"kind": "ppo"}, {"value": {"lr": 2e-2, "coef": 1.0, "clip": None}, "lr": 1e-3})
    first = t.step(batch)
    for _ in range(25):
        last = t.step(batch)
    assert first.explained_variance == pytest.approx(0.0) and last.explained_variance > 0.7
    assert last.value_loss < first.value_loss / 2


def test_a_detached_head_leaves_the_trunk_alone():
    batch = rewarded(random_rows(4, seed=2), rewards=[1.0, 1.0, 1.0, 1.0])
    plain = {"lam": 1.0, "whiten": True}
    t = trainer({"kind": "ppo"}, {"value": plain | {"detach": True}})  # equal returns: whitened advantages are 0
    before = copy_weights(t)
    t.step(batch)
    changed = {n for n, p in t.parameters.items() if not torch.equal(p, before[n])}
    assert changed == {"value_head.weight", "value_head.bias"}


def test_observations_between_turns_are_no_steps_of_the_estimate():
    """Own tokens 3, 4 and 7, 8: the value before token 7 follows that before token 4."""
    ids = np.arange(1, 10)
    own = np.isin(np.arange(9), [3, 4, 7, 8])
    two_turns = rewarded([{"ids": ids, "rl_mask": own}], rewards=[1.0])
    t = moved(trainer({"kind": "ppo"}, {"value": {"gamma": 0.9, "lam": 0.8, "whiten": False}}))
    found, critic = t._criticise(two_turns)
    v = np.append(critic.values[own], 0.0)
    delta = np.array([0, 0, 0, 1.0]) + 0.9 * v[1:] - v[:-1]
    expected = [sum(0.72 ** (k - i) * delta[k] for k in range(i, 4)) for i in range(4)]
    assert found.advantages[own] == pytest.approx(expected, rel=1e-5)
    with torch.no_grad():  # V of token 3 is read at the token before it
        hidden = t.model.model(input_ids=torch.tensor(ids)[None]).last_hidden_state[0, 2]
        assert critic.values[3] == pytest.approx(float(t.value(hidden[None])), rel=1e-5)


def test_values_of_a_model_whose_logits_are_not_its_head_alone():
    """GPT-2 has a plain head; told otherwise, the trainer reads the same values from the full forward pass."""
    batch = rewarded(random_rows(3, seed=2, vocab=11), rewards=[1.0, 0.0, 0.5])
    a, b = (moved(trainer({"kind": "ppo"}, {"value": {}}, tiny_gpt2())) for _ in range(2))
    assert a.policy.head is not None
    b.policy.head = None
    one, two = gradient(a, batch), gradient(b, batch)
    assert relative(one[0], two[0]) < 1e-5 and one[1] == pytest.approx(two[1], rel=1e-5)


def test_the_published_weights_have_no_value_head():
    t = trainer({"kind": "ppo"}, {"value": {}})
    assert t.weights().keys() == t.model.state_dict().keys()


def test_behaviour_as_reference_needs_no_second_model_and_given_references_are_used():
    online = trainer({"kind": "dpo", "pair_reference": "behaviour"}, {})
    assert online.reference is None and online.step(pairs(random_rows(4))).pairs == 3
    rows = random_rows(4)
    given = trainer({"kind": "dpo", "beta": 0.3}, {}).step(pairs([r | {"reference": r["behaviour"]} for r in rows]))
    assert given.loss == trainer({"kind": "dpo", "beta": 0.3, "pair_reference": "behaviour"}, {}).step(pairs(rows)).loss

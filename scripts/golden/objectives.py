"""Writes src/learning/fixtures/objectives.json with the losses, gradients and advantages of TRL and verl: see README.md.

Their own functions run, on fixed arrays in float64. TRL's loss is a method, so it is called on an object that has what
it reads and no more; where a formula stands inside a longer method, its lines are taken from the installed source.
"""

import inspect
import json
import math
import textwrap
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from trl import GRPOTrainer
from trl.trainer import grpo_trainer
from verl.trainer.ppo import core_algos as verl
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights
from verl.workers.config import ActorConfig

OUT = Path(__file__).resolve().parents[2] / "src" / "learning" / "fixtures" / "objectives.json"
LENGTHS = [5, 3, 4, 2, 5, 1]
WIDTH = 5
CONSTANT = 16
F64 = torch.float64


def make_batch(spread: float) -> dict[str, torch.Tensor]:
    """Six sequences, two groups of three, padded on the right; one token inside does not count."""
    random = np.random.default_rng(7)
    logprobs = torch.tensor(-0.1 - 3 * random.random((6, WIDTH)), dtype=F64)
    near = lambda: logprobs + torch.tensor(spread * random.standard_normal((6, WIDTH)), dtype=F64)  # noqa: E731
    mask = torch.tensor([[float(t < n) for t in range(WIDTH)] for n in LENGTHS], dtype=F64)
    mask[0, 1] = 0
    return {
        "logprobs": logprobs,
        "oldLogprobs": near(),
        "rolloutLogprobs": near(),
        "referenceLogprobs": near(),
        "entropies": torch.tensor(2 * random.random((6, WIDTH)), dtype=F64),
        "advantages": torch.tensor([1.4, -0.7, -0.7, 0.9, -1.2, 0.3], dtype=F64).unsqueeze(1).expand(6, WIDTH),
        "tokenAdvantages": torch.tensor(random.standard_normal((6, WIDTH)), dtype=F64),
        "mask": mask,
    }


def block(function, first: str, last: str) -> str:
    """Lines of a function from the one that starts with `first` to the one before `last`."""
    lines = inspect.getsource(function).splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().startswith(first))
    end = next(i for i, line in enumerate(lines) if i > start and line.strip().startswith(last))
    return textwrap.dedent("\n".join(lines[start:end]))


def trl_loss(batch: dict, advantages: str = "advantages", correction=None, **settings) -> dict:
    logprobs = batch["logprobs"].clone().requires_grad_()
    entropies = batch["entropies"].clone().requires_grad_()
    values = {
        "loss_type": "grpo", "importance_sampling_level": "token", "epsilon_low": 0.2, "epsilon_high": 0.2, "beta": 0.0,
        "delta": None, "entropy_coef": 0.0, "use_bias_correction_kl": False, **settings,
    }  # fmt: skip
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logprobs, entropies, None),
        args=SimpleNamespace(
            delta=values["delta"], use_bias_correction_kl=values["use_bias_correction_kl"], steps_per_generation=1,
        ),
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None,
        use_vllm=correction is not None, vllm_importance_sampling_correction=correction is not None,
        current_gradient_accumulation_steps=1, max_completion_length=CONSTANT,
        _entropy_bonus_enabled=values["entropy_coef"] != 0, use_adaptive_entropy=False,
        model=SimpleNamespace(training=True), _metrics={"train": defaultdict(list)},
        accelerator=SimpleNamespace(
            num_processes=1, sync_gradients=False, gather=lambda x: x, reduce=lambda x, reduction: x,
        ),
        **values,
    )  # fmt: skip
    empty = torch.zeros((6, 0), dtype=F64)
    inputs = {
        "prompt_ids": empty, "prompt_mask": empty, "completion_ids": torch.zeros_like(batch["mask"]),
        "completion_mask": batch["mask"], "advantages": batch[advantages],
        "old_per_token_logps": batch["oldLogprobs"], "ref_per_token_logps": batch["referenceLogprobs"],
        "num_items_in_batch": batch["mask"].sum(),
    }  # fmt: skip
    if correction is not None:
        inputs["importance_sampling_ratio"] = trl_correction(batch, correction)
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    return result(loss, logprobs, entropies, {**values, **({"correction": correction} if correction else {})})


def trl_correction(batch: dict, correction: dict) -> torch.Tensor:
    lines = block(GRPOTrainer._generate_and_score_completions, "per_token_logps_diff = (", "# Compute the per-token log")
    names = {
        "self": SimpleNamespace(**{f"vllm_importance_sampling_{key}": value for key, value in correction.items()}),
        "old_per_token_logps": batch["oldLogprobs"], "sampling_per_token_logps": batch["rolloutLogprobs"],
        "mask": batch["mask"], "torch": torch, "math": math,
    }  # fmt: skip
    exec(lines, names)
    return names["vllm_importance_sampling_ratio"]


def trl_advantages(rewards: list[list[float]], size: int, aggregation: str, scale: str, weights: list[float]) -> list[float]:
    lines = block(
        GRPOTrainer._generate_and_score_completions,
        'if self.multi_objective_aggregation == "sum_then_normalize"',
        "# Slice to keep only the local part",
    )
    names = {
        "self": SimpleNamespace(
            multi_objective_aggregation=aggregation, scale_rewards=scale, reward_funcs=weights,
            reward_weights=torch.tensor(weights, dtype=F64),
        ),
        "rewards_per_func": torch.tensor(rewards, dtype=F64), "num_generations": size, "device": "cpu",
        "unscorable_mask": torch.zeros(len(rewards), dtype=torch.bool), "torch": torch, "nanstd": grpo_trainer.nanstd,
    }  # fmt: skip
    exec(lines, names)
    return names["advantages"].tolist()


def verl_loss(function, batch: dict, mode: str, advantages: str = "advantages", weights=None, **settings) -> dict:
    logprobs = batch["logprobs"].clone().requires_grad_()
    config = ActorConfig(strategy="fsdp", rollout_n=3, ppo_micro_batch_size_per_gpu=6, **settings)
    if mode == "seq-mean-token-sum-norm":
        config.global_batch_info["loss_scale_factor"] = CONSTANT
    loss, _ = function(
        batch["oldLogprobs"], logprobs, batch[advantages], batch["mask"], loss_agg_mode=mode, config=config,
        rollout_is_weights=weights,
    )  # fmt: skip
    return result(loss, logprobs, None, {"loss_agg_mode": mode, **settings})


def verl_kl(batch: dict, estimator: str) -> dict:
    logprobs = batch["logprobs"].clone().requires_grad_()
    values = verl.kl_penalty(logprobs, batch["referenceLogprobs"], estimator)
    loss = verl.agg_loss(values, batch["mask"], "token-mean")
    return result(loss, logprobs, None, {"kl_penalty": estimator, "loss_agg_mode": "token-mean"})


def result(loss: torch.Tensor, logprobs: torch.Tensor, entropies, settings: dict) -> dict:
    loss.backward()
    found = {"settings": settings, "loss": loss.item(), "gradient": logprobs.grad.flatten().tolist()}
    if entropies is not None and entropies.grad is not None:
        found["entropyGradient"] = entropies.grad.flatten().tolist()
    return found


def main() -> None:
    wide, near = make_batch(0.3), make_batch(1.5e-3)
    truncated = {**wide, "mask": wide["mask"].clone()}
    truncated["mask"][2] = 0
    gspo = {"epsilon_low": 3e-4, "epsilon_high": 4e-4, "importance_sampling_level": "sequence"}
    small = {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4}
    vanilla, seq = verl.compute_policy_loss_vanilla, "seq-mean-token-mean"
    log_ratio = wide["oldLogprobs"] - wide["rolloutLogprobs"]

    def weights(level: str, threshold):
        return compute_rollout_correction_weights(log_ratio, wide["mask"], level, threshold)[0]

    reinforce = lambda *a, **k: verl.compute_policy_loss_reinforce(*a, **k)  # noqa: E731
    losses = {
        "trl grpo": ("wide", trl_loss(wide)),
        "trl grpo truncated": ("truncated", trl_loss(truncated)),
        "trl grpo beta": ("wide", trl_loss(wide, beta=0.04)),
        "trl grpo beta ratio": ("wide", trl_loss(wide, beta=0.04, use_bias_correction_kl=True)),
        "trl gspo beta ratio": ("wide", trl_loss(wide, beta=0.04, use_bias_correction_kl=True, **gspo)),
        "trl grpo delta": ("wide", trl_loss(wide, delta=1.5)),
        "trl bnpo": ("wide", trl_loss(wide, loss_type="bnpo")),
        "trl dr_grpo": ("wide", trl_loss(wide, loss_type="dr_grpo")),
        "trl dapo": ("wide", trl_loss(wide, loss_type="dapo", epsilon_high=0.28)),
        "trl dapo tokens": ("wide", trl_loss(wide, "tokenAdvantages", loss_type="dapo", epsilon_high=0.28)),
        "trl dapo entropy": ("wide", trl_loss(wide, loss_type="dapo", epsilon_high=0.28, entropy_coef=0.01)),
        "trl cispo": ("wide", trl_loss(wide, loss_type="cispo", epsilon_high=1.2)),
        "trl gspo": ("near", trl_loss(near, **gspo)),
        "trl gspo tokens": ("near", trl_loss(near, "tokenAdvantages", **gspo)),
        "trl token_truncate": (
            "wide", trl_loss(wide, correction={"mode": "token_truncate", "clip_min": None, "clip_max": 1.3}),
        ),
        "trl sequence_mask": (
            "wide", trl_loss(wide, correction={"mode": "sequence_mask", "clip_min": None, "clip_max": 1.6}),
        ),
        "verl vanilla": ("wide", verl_loss(vanilla, wide, "token-mean")),
        "verl vanilla higher": ("wide", verl_loss(vanilla, wide, "token-mean", clip_ratio_high=0.28)),
        "verl vanilla c": ("wide", verl_loss(vanilla, wide, seq, clip_ratio_c=1.3)),
        "verl vanilla truncated": ("truncated", verl_loss(vanilla, truncated, seq)),
        "verl vanilla norm": ("wide", verl_loss(vanilla, wide, "seq-mean-token-sum-norm")),
        "verl vanilla tokens": ("wide", verl_loss(vanilla, wide, "token-mean", "tokenAdvantages")),
        "verl gspo": ("near", verl_loss(verl.compute_policy_loss_gspo, near, seq, **small)),
        "verl gspo tokens": ("near", verl_loss(verl.compute_policy_loss_gspo, near, seq, "tokenAdvantages", **small)),
        "verl cispo": ("wide", verl_loss(verl.compute_policy_loss_cispo, wide, "token-mean")),
        "verl reinforce": ("wide", verl_loss(reinforce, wide, "seq-mean-token-sum")),
        "verl truncate": (
            "wide", verl_loss(vanilla, wide, "token-mean", weights=weights("token", 1.3)),
        ),
        "verl truncate sequence": (
            "wide", verl_loss(vanilla, wide, "token-mean", weights=weights("sequence", 1.3)),
        ),
        "verl mask": (
            "wide", verl_loss(vanilla, wide, "token-mean", weights=weights("token", "0.8_1.3")),
        ),
        **{f"verl kl {k}": ("wide", verl_kl(wide, k)) for k in ["k1", "k2", "k3", "k1+", "k3+"]},
    }  # fmt: skip

    rewards = [1, 0, 0, 0, 1, 1, 0, 0.5, 0.25, 0.25, 0.25, 0.25]
    pairs = [[r, s] for r, s in zip(rewards, [0.1, 0.9, 0.3, 0.3, 0.2, 0.2, 0.2, 0.2, 0, 1, 0, 0])]
    index = np.repeat(np.arange(3), 4)
    scores = torch.tensor(rewards, dtype=F64).unsqueeze(1)
    ones = torch.ones_like(scores)
    one = torch.tensor([[0.75]], dtype=F64)
    flat = lambda pair: pair[0].flatten().tolist()  # noqa: E731
    gdpo_config = {"gdpo_reward_keys": ["a", "b"], "gdpo_reward_weights": [1.0, 0.5]}
    advantages = {
        "trl group": trl_advantages([[r] for r in rewards], 4, "sum_then_normalize", "group", [1.0]),
        "trl batch": trl_advantages([[r] for r in rewards], 4, "sum_then_normalize", "batch", [1.0]),
        "trl none": trl_advantages([[r] for r in rewards], 4, "sum_then_normalize", "none", [1.0]),
        "trl sum_then_normalize": trl_advantages(pairs, 4, "sum_then_normalize", "group", [1.0, 0.5]),
        "trl normalize_then_sum": trl_advantages(pairs, 4, "normalize_then_sum", "group", [1.0, 0.5]),
        "verl grpo": flat(verl.compute_grpo_outcome_advantage(scores.clone(), ones, index)),
        "verl grpo no std": flat(
            verl.compute_grpo_outcome_advantage(scores.clone(), ones, index, norm_adv_by_std_in_grpo=False)
        ),
        "verl grpo group of one": flat(verl.compute_grpo_outcome_advantage(one.clone(), torch.ones_like(one), np.array([0]))),
        "verl rloo": flat(verl.compute_rloo_outcome_advantage(scores.clone(), ones, index)),
        # Completions of one token each, so that verl's last step, a whitening over tokens, is one over completions.
        "verl gdpo": flat(
            verl.compute_gdpo_outcome_advantage(
                scores.clone(), ones, index, config=gdpo_config,
                non_tensor_batch={"a": np.array([a for a, _ in pairs]), "b": np.array([b for _, b in pairs])},
                batch={"prompts": torch.zeros(12, 1), "attention_mask": torch.ones(12, 2, dtype=torch.long)},
            )
        ),
    }  # fmt: skip

    controller = verl.AdaptiveKLController(0.2, 0.1, 1000)
    betas = []
    for kl in [0.3, 0.11, 0.1, 0.02, 0.095]:
        controller.update(kl, 64)
        betas.append(controller.value)

    flatten = lambda batch: {key: value.flatten().tolist() for key, value in batch.items()}  # noqa: E731
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(
        json.dumps(
            {
                "versions": {name: version(name) for name in ["trl", "verl", "torch", "transformers", "numpy"]},
                "offsets": [WIDTH * i for i in range(7)],
                "constantLength": CONSTANT,
                "batches": {"wide": flatten(wide), "near": flatten(near), "truncated": flatten(truncated)},
                "losses": {name: {"batch": batch, **found} for name, (batch, found) in losses.items()},
                "rewards": {"groupSize": 4, "values": rewards, "pairs": pairs, "weights": [1.0, 0.5]},
                "advantages": advantages,
                "controller": {"initial": 0.2, "target": 0.1, "horizon": 1000, "progress": 64,
                               "measured": [0.3, 0.11, 0.1, 0.02, 0.095], "values": betas},
            }
        )
        + "\n"
    )  # fmt: skip
    print(f"{len(losses)} losses, {len(advantages)} sets of advantages")


if __name__ == "__main__":
    main()

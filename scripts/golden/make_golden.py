"""Writes the golden data under src/engine/fixtures: see README.md. Same versions, same files."""

import shutil
import sys
from pathlib import Path

import torch
from models import build, cases, golden, save_tensors, write_json

FIXTURES = Path(__file__).resolve().parents[2] / "src" / "engine" / "fixtures"


def fresh(name: str) -> Path:
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def make_models() -> None:
    for case in cases():
        model = build(case)
        folder = fresh(case.name)
        model.save_pretrained(folder)
        tensors, difference = golden(case, model)
        save_tensors(folder / "golden.safetensors", tensors)
        print(f"{case.name}: float32 differs from float64 by {difference:.1e} in the logits")
        assert difference < 1e-4, "the float64 computation is not the same model"


def make_narrow() -> None:
    """Folders in 16-bit formats, one of them in shards, with the values they hold as float32."""
    case = cases()[1]
    for name, dtype, shard in [("sharded-bf16", torch.bfloat16, "8KB"), ("f16", torch.float16, "1GB")]:
        model = build(case)
        with torch.no_grad():
            special = model.model.norm.weight
            # Subnormal in float16, the largest float16, and a value halfway between two neighbours.
            special[:6] = torch.tensor([6e-8, -3e-6, 6.1e-5, 65504.0, -1.00048828125, 0.0])
        model = model.to(dtype)
        folder = fresh(name)
        model.save_pretrained(folder, max_shard_size=shard)
        expected = {key: value.detach().to(torch.float32) for key, value in model.named_parameters()}
        save_tensors(folder / "expected.safetensors", expected)
        print(f"{name}: {sorted(path.name for path in folder.iterdir())}")


def make_adamw() -> None:
    """Five AdamW steps of two groups, one without decay, with gradients clipped by their global norm."""
    generator = torch.Generator().manual_seed(7)
    settings = dict(betas=(0.9, 0.95), eps=1e-8, clip=1.0, weight_decay=0.1)
    learning_rates = [0.01, 0.02, 0.03, 0.02, 0.01]
    scales = [0.1, 2.0, 0.5, 5.0, 0.01]  # clipped in some steps only
    weight = torch.randn(7, generator=generator, dtype=torch.float64).requires_grad_()
    bias = torch.randn(3, generator=generator, dtype=torch.float64).requires_grad_()
    optimizer = torch.optim.AdamW(
        [{"params": [weight], "weight_decay": settings["weight_decay"]}, {"params": [bias], "weight_decay": 0.0}],
        betas=settings["betas"],
        eps=settings["eps"],
    )
    result = dict(
        **{**settings, "betas": list(settings["betas"])},
        initial=dict(weight=weight.tolist(), bias=bias.tolist()),
        steps=[],
    )
    for learning_rate, scale in zip(learning_rates, scales, strict=True):
        weight.grad = scale * torch.randn(7, generator=generator, dtype=torch.float64)
        bias.grad = scale * torch.randn(3, generator=generator, dtype=torch.float64)
        gradient = dict(weight=weight.grad.tolist(), bias=bias.grad.tolist())
        norm = torch.nn.utils.clip_grad_norm_([weight, bias], settings["clip"]).item()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()
        after = dict(weight=weight.tolist(), bias=bias.tolist())
        result["steps"].append(dict(learningRate=learning_rate, gradient=gradient, norm=norm, after=after))
    write_json(FIXTURES / "adamw.json", result)


if __name__ == "__main__":
    torch.set_num_threads(1)
    FIXTURES.mkdir(parents=True, exist_ok=True)
    stages = {"models": make_models, "narrow": make_narrow, "adamw": make_adamw}
    for stage in sys.argv[1:] or stages:
        stages[stage]()

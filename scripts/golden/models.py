"""Tiny models of each family, and what `transformers` computes with them, in float64."""

import json
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch
from safetensors.torch import save_file
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    modeling_rope_utils,
)
from transformers.models.llama import modeling_llama
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3

LENGTHS = [11, 5, 8]  # tokens of each row; the first is the widest
TEMPERATURE = 0.7

COMMON = dict(
    vocab_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
    attn_implementation="eager",
)


@dataclass
class Case:
    name: str
    model: type[PreTrainedModel]
    config: PretrainedConfig
    seed: int


def cases() -> list[Case]:
    """Between them: tied and untied heads; 4, 2 and 1 key heads; head_dim equal to hidden/heads and not."""
    rope3 = dict(
        rope_type="llama3",
        rope_theta=100.0,
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        # With 4 frequencies this keeps one, blends two and divides one.
        original_max_position_embeddings=64,
    )

    def llama(**settings) -> LlamaConfig:
        return LlamaConfig(**{**COMMON, **settings})

    return [
        Case(
            "llama-tied",
            LlamaForCausalLM,
            llama(hidden_size=16, intermediate_size=24, num_key_value_heads=4, head_dim=4, tie_word_embeddings=True),
            1,
        ),
        Case(
            "llama-untied",
            LlamaForCausalLM,
            llama(hidden_size=16, intermediate_size=20, num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-5),
            2,
        ),
        Case(
            "llama3-rope",
            LlamaForCausalLM,
            llama(
                hidden_size=16,
                intermediate_size=24,
                num_key_value_heads=1,
                head_dim=8,
                rope_parameters=rope3,
                max_position_embeddings=128,
                tie_word_embeddings=True,
            ),
            3,
        ),
        Case(
            "llama-biased",
            LlamaForCausalLM,
            llama(
                hidden_size=16,
                intermediate_size=20,
                num_key_value_heads=2,
                head_dim=6,
                attention_bias=True,
                mlp_bias=True,
                rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0),
            ),
            4,
        ),
        Case(
            "qwen2",
            Qwen2ForCausalLM,
            Qwen2Config(
                **COMMON, hidden_size=16, intermediate_size=24, num_key_value_heads=2, tie_word_embeddings=True
            ),
            5,
        ),
        Case(
            "qwen3",
            Qwen3ForCausalLM,
            Qwen3Config(**COMMON, hidden_size=16, intermediate_size=24, num_key_value_heads=2, head_dim=8),
            6,
        ),
    ]


def build(case: Case) -> PreTrainedModel:
    """A float32 model whose every parameter, norms and biases too, is random and of visible size."""
    torch.manual_seed(case.seed)
    model = case.model(case.config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            if "norm" in name:
                parameter.copy_(1 + 0.3 * noise)
            elif name.endswith(".bias"):
                parameter.copy_(0.3 * noise)
            elif "embed" in name:
                parameter.copy_(0.5 * noise)
            else:
                parameter.copy_(0.35 * noise)
    return model


class _Float64Torch:
    """`torch`, but "float32" means float64."""

    float32 = torch.float64
    float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextmanager
def float64():
    """The modelling code converts to float32 for norms, softmax and rotary tables; here it keeps float64."""
    modules = [modeling_rope_utils, modeling_llama, modeling_qwen2, modeling_qwen3]
    patches = [patch.object(module, "torch", _Float64Torch()) for module in modules]
    for entry in patches:
        entry.start()
    try:
        yield
    finally:
        for entry in patches:
            entry.stop()


def to_float64(case: Case, model: PreTrainedModel) -> PreTrainedModel:
    """Same weights, rotary frequencies computed anew. Call inside `float64()`."""
    double = case.model(case.config).double().eval()
    with torch.no_grad():
        for target, source in zip(double.parameters(), model.parameters(), strict=True):
            target.copy_(source)
    rotary = double.model.rotary_emb
    init = rotary.compute_default_rope_parameters
    kind = case.config.rope_parameters["rope_type"]
    if kind != "default":
        init = modeling_rope_utils.ROPE_INIT_FUNCTIONS[kind]
    rotary.inv_freq = init(case.config)[0]
    assert rotary.inv_freq.dtype == torch.float64
    return double


def score(model: PreTrainedModel, rows: list[torch.Tensor], temperature: float):
    """Each row alone, so that padding cannot matter. Log-probabilities and entropies of the tokens after the first."""
    logits, logprobs, entropies = [], [], []
    for row in rows:
        output = model(input_ids=row[None]).logits[0]
        distribution = torch.log_softmax(output[:-1] / temperature, dim=-1)
        logits.append(output)
        logprobs.append(distribution.gather(1, row[1:, None])[:, 0])
        entropies.append(-(distribution.exp() * distribution).sum(-1))
    return logits, logprobs, entropies


def pad(rows: list[torch.Tensor], width: int) -> torch.Tensor:
    return torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in rows])


def gradients(model: PreTrainedModel, rows, temperature, c, e) -> dict[str, torch.Tensor]:
    """Of sum c·logprob + sum e·entropy, for every parameter."""
    _, logprobs, entropies = score(model, rows, temperature)
    scalar = sum((weight * value).sum() for weight, value in zip(c + e, logprobs + entropies, strict=True))
    named = dict(model.named_parameters())
    return dict(zip(named, torch.autograd.grad(scalar, list(named.values())), strict=True))


def verify(model: PreTrainedModel, rows, c, e, gradient: dict[str, torch.Tensor]) -> None:
    """Checks the float64 computation: a padded batch gives the same logits, a central difference the gradient."""
    tokens = pad(rows, max(LENGTHS))
    attended = pad([torch.ones_like(row) for row in rows], max(LENGTHS))
    with torch.no_grad():
        batch = model(input_ids=tokens, attention_mask=attended).logits
        alone = score(model, rows, TEMPERATURE)[0]
        for row, logits in zip(batch, alone, strict=True):
            assert (row[: len(logits)] - logits).abs().max() < 1e-12
        generator = torch.Generator().manual_seed(0)
        step = 1e-5
        named = dict(model.named_parameters())
        direction = {name: torch.randn(value.shape, generator=generator).double() for name, value in named.items()}

        def moved(by: float) -> float:
            for name, value in named.items():
                value.add_(direction[name], alpha=by)
            _, logprobs, entropies = score(model, rows, TEMPERATURE)
            return sum((w * v).sum() for w, v in zip(c + e, logprobs + entropies, strict=True)).item()

        difference = (moved(step) - moved(-2 * step)) / (2 * step)
        moved(step)
        slope = sum((gradient[name] * direction[name]).sum() for name in named).item()
        assert abs(difference - slope) < 1e-6 * abs(slope), (difference, slope)


def golden(case: Case, model: PreTrainedModel) -> tuple[dict[str, torch.Tensor], float]:
    """The tensors of golden.safetensors, and the largest difference of plain float32 logits from them."""
    generator = torch.Generator().manual_seed(100 + case.seed)
    rows = [torch.randint(3, COMMON["vocab_size"], (n,), generator=generator) for n in LENGTHS]
    c = [torch.randn(n - 1, generator=generator).double() for n in LENGTHS]
    e = [torch.randn(n - 1, generator=generator).double() for n in LENGTHS]
    zero = [torch.zeros(n - 1, dtype=torch.float64) for n in LENGTHS]
    width = max(LENGTHS)
    with float64():
        double = to_float64(case, model)
        with torch.no_grad():
            logits, logprobs, entropies = score(double, rows, 1.0)
            _, logprobs_warm, entropies_warm = score(double, rows, TEMPERATURE)
        sets = {
            "logprob": gradients(double, rows, 1.0, c, zero),
            "entropy": gradients(double, rows, 1.0, zero, e),
            "both": gradients(double, rows, TEMPERATURE, c, e),
        }
        verify(double, rows, c, e, sets["both"])
    with torch.no_grad():
        plain = torch.cat(score(model, rows, 1.0)[0])
    tensors = {
        "tokens": pad(rows, width),
        "lengths": torch.tensor(LENGTHS),
        "logits": torch.cat(logits),
        "logprobs": pad(logprobs, width - 1),
        "entropies": pad(entropies, width - 1),
        "logprobs@0.7": pad(logprobs_warm, width - 1),
        "entropies@0.7": pad(entropies_warm, width - 1),
        "c": pad(c, width - 1),
        "e": pad(e, width - 1),
    }
    for kind, grads in sets.items():
        tensors |= {f"gradient.{kind}.{name}": value for name, value in grads.items()}
    difference = (plain - tensors["logits"]).abs().max().item()
    return {name: value.to(torch.float32).contiguous() for name, value in tensors.items()}, difference


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def save_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, path, metadata={"format": "pt"})

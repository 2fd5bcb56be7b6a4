"""Checks a model folder saved by rlvr against `transformers`: see README.md."""

import argparse
import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def check_logits(folder: Path, expected_file: Path, tolerance: float) -> bool:
    expected = json.loads(expected_file.read_text())
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    problems = {key: value for key, value in info.items() if value}
    if problems:
        print(f"{folder}: transformers reports {problems}")
    differences = []
    with torch.no_grad():
        for tokens, logits in zip(expected["tokens"], expected["logits"], strict=True):
            got = model.eval()(input_ids=torch.tensor([tokens])).logits[0]
            want = torch.tensor(logits)
            if got.shape != want.shape:
                print(f"{folder}: logits have shape {list(got.shape)}, expected {list(want.shape)}")
                return False
            differences.append((got - want).abs().max())
    worst = torch.stack(differences).max().item()  # NaN stays NaN, and fails
    ok = not problems and worst <= tolerance
    print(f"{folder}: largest difference of logits {worst:.2e} (tolerance {tolerance:.0e}): {'same' if ok else 'DIFFERENT'}")
    return ok


def check_tokenizer(folder: Path, texts_file: Path) -> bool:
    cases = json.loads(texts_file.read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ok = bool(cases)
    for case in cases:
        ids = tokenizer.encode(case["text"], add_special_tokens=False)
        if ids != case["ids"]:
            ok = False
            print(f"{folder}: {case['text']!r}: transformers gives {ids}, expected {case['ids']}")
    print(f"{folder}: {len(cases)} texts: {'same ids' if ok else 'DIFFERENT'}")
    return ok


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--expect", type=Path, help="JSON file with tokens and logits")
    parser.add_argument("--texts", type=Path, help="JSON file with texts and their token ids")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    arguments = parser.parse_args()
    if arguments.expect is None and arguments.texts is None:
        parser.error("give --expect, --texts or both")
    results = []
    if arguments.expect is not None:
        results.append(check_logits(arguments.folder, arguments.expect, arguments.tolerance))
    if arguments.texts is not None:
        results.append(check_tokenizer(arguments.folder, arguments.texts))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

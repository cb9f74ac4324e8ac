"""Real weights through the command: a checkpoint's prompt is continued as transformers continues it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from kvplan.cli.main import main  # noqa: E402 - after what it needs

YAML = """
name: spoken
hidden_size: 64
vocab_size: 40
rope: {theta: 10000}
layers: 2
layer:
  attention: {heads: 4, kv_heads: 2, head_dim: 16}
  mlp: {intermediate_size: 128}
"""
OPTIONS = ["--device", "cpu", "--dtype", "fp32", "--threads", "1", "--batch", "1", "--context", "32", "--repeats", "2"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = transformers.LlamaConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        intermediate_size=128, vocab_size=40, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "checkpoint")
    words = {f"w{i}": i for i in range(40)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "checkpoint" / "tokenizer.json"))
    (tmp_path / "model.yaml").write_text(YAML)
    (tmp_path / "prompt.txt").write_text("w3 w1 w4 w1 w5")
    return tmp_path


def test_a_prompt_is_continued(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, prompt = str(folder / "checkpoint"), str(folder / "prompt.txt")
    words = ["--checkpoint", checkpoint, "--prompt", prompt, "--new-tokens", "6", "--format", "json"]
    assert main(["measure", "--model", str(folder / "model.yaml"), *OPTIONS, *words]) == 0
    (found,) = [row for row in json.loads(capsys.readouterr().out) if row["quantity"] == "generation"]
    model = transformers.LlamaForCausalLM.from_pretrained(checkpoint)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.inference_mode():
        for _ in range(6):
            ids = torch.cat((ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)), dim=1)
    assert found["text"] == " ".join(f"w{i}" for i in ids[0, 5:].tolist())
    assert found["prompt"] == "w3 w1 w4 w1 w5"


def test_a_broken_file_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = folder / "checkpoint" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    words = ["--checkpoint", str(folder / "checkpoint")]
    assert main(["measure", "--model", str(folder / "model.yaml"), *OPTIONS, *words]) == 2
    assert "is not a whole safetensors file" in capsys.readouterr().err

"""kvplan import: what was found, and a model file that says the same again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import llama, model_folder, write
from gguf_models import dense, edges, in_block, keys, latent, mlp, norms
from gguf_models import write as write_gguf

from kvplan.cli.main import main
from kvplan.loading import load_model


def run(*argv: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main([str(each) for each in argv])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def found(*argv: object, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code, out, err = run("import", *argv, "--format", "json", capsys=capsys)
    assert (code, err) == (0, "")
    (row,) = json.loads(out)
    return dict(row)


def estimated(model: object, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code, out, _ = run("estimate", "-m", model, "-g", "a100-80g", "-f", "json", capsys=capsys)
    assert code == 0
    (row,) = json.loads(out)
    return {key: value for key, value in row.items() if key != "model"}


def mla(folder: Path) -> Path:
    """Its attn_k_b has rows of 32, which no scheme for whole matrices gives."""
    t = edges()
    for i in range(2):
        t |= {**norms(i), **latent(i), **mlp(i)}
    widths = {"key_length": 144, "value_length": 128, "key_length_mla": 48, "value_length_mla": 32}
    more = {"rope.dimension_count": 16, "attention.q_lora_rank": 64, "attention.kv_lora_rank": 128}
    k = {**keys(2, attention__head_count=4), **more, **{f"attention.{n}": v for n, v in widths.items()}}
    return write_gguf(
        folder / "a.gguf", "deepseek2", k, t, {"attn_k_b.weight": "Q4_0", "attn_q_b.weight": "F16"}, "Q8_0"
    )


def test_a_folder_becomes_a_model_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, target = model_folder(tmp_path / "small"), tmp_path / "my-model.yaml"
    row = found(folder, "-o", target, "--name", "mine", capsys=capsys)
    assert (row["name"], row["kind"], row["layers"], row["file_tensors"]) == ("mine", "safetensors", 2, 21)
    assert row["parameters"] == row["file_parameters"]
    assert row["file_bytes_by_type"] == {"BF16": 2 * row["parameters"]}
    assert {each["why"] for each in row["agreement"]} == {"agrees"}
    assert target.read_text().startswith("name: mine\nsource: config.json")
    assert load_model(target).stack == load_model(folder).stack
    assert estimated(target, capsys) == estimated(folder, capsys)


def test_a_gguf_file_becomes_a_model_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = mla(tmp_path), tmp_path / "a.yaml"
    row = found(path, "-o", target, capsys=capsys)
    assert row["weights_bytes"] == row["file_bytes"]
    assert row["host_bytes"] == 512 * 256 // 32 * 34  # token_embd in q8_0
    attention = next(each for each in row["agreement"] if each["component"] == "attention")
    assert attention["difference"] == 0
    assert attention["bytes_from_file"] != attention["bytes_from_config"]
    assert "stored_bytes: {attention: " in target.read_text()  # and of no component that the scheme gives anyway
    assert estimated(target, capsys) == estimated(path, capsys)


def test_a_table_shows_agreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model_folder(tmp_path / "small", tie_word_embeddings=True)
    code, out, _ = run("import", folder, capsys=capsys)
    assert code == 0
    assert "file_bytes_by_type:\n  BF16:" in out
    assert "the file stores it a second" in " ".join(out.split())


def test_tensors_alone_are_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "model.safetensors", llama())
    row = found(path, capsys=capsys)
    assert "name" not in row
    assert row["file_bytes"] == sum(each["bytes_from_file"] for each in row["agreement"])
    code, _, err = run("import", path, "-o", tmp_path / "a.yaml", capsys=capsys)
    assert code == 2
    assert "make sums but no model" in err
    assert not (tmp_path / "a.yaml").exists()


def test_estimates_take_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model_folder(tmp_path / "small")
    assert estimated(folder, capsys) == estimated(folder / "config.json", capsys)
    gguf = write_gguf(tmp_path / "b.gguf", "llama", *dense(2))
    assert estimated(gguf, capsys)["weights_bytes"] == found(gguf, capsys=capsys)["file_bytes"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("nowhere.gguf",), "nowhere.gguf: there is no such file"),
        (("nowhere.safetensors",), "nowhere.safetensors: there is no such file"),
        (("nowhere",), "no such file"),
        (("model.pt",), "which runs code when it is opened"),
        (("hf:a/b/c",), "write hf:ORG/NAME"),
        (("x", "-o", "model.json"), "a model file ends in .yaml"),
        (("x", "--name", " "), "--name: expected text that is not blank"),
    ],
)
def test_mistakes_are_told(
    argv: tuple[str, ...],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run("import", *argv, capsys=capsys)
    assert (code, out) == (2, "")
    assert said in err


def test_a_block_outside_the_model_is_no_part_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    k, t = dense(2)
    t |= in_block(2, {"nextn.eh_proj": (256, 512)})
    path = write_gguf(tmp_path / "a.gguf", "llama", {**k, "block_count": 3, "nextn_predict_layers": 1}, t)
    row = found(path, capsys=capsys)
    assert row["extras"] == {"mtp": 256 * 512}
    assert {each["component"]: each["from_file"] for each in row["agreement"]}["mtp"] == 256 * 512

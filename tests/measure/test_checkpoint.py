"""Checkpoints: whole ones load (tests/measure/decoder compares their logits), the others are told what is wrong."""

from __future__ import annotations

import json
import shutil
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hub_models import CASES, Case, attention, dense, furthest, hub_model, loaded, prompts, saved
from safetensors.torch import load_file, save_file

from kvplan.errors import InputError, MissingPackageError
from kvplan.measure.checkpoint import checkpoint_numerics, load_checkpoint, load_tokenizer, our_name
from kvplan.measure.decoder.build import build_decoder
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.hub_config import numerics_from
from kvplan.measure.decoder.numerics import Numerics
from kvplan.measure.decoder.packing import choose_layouts, pack_linears
from kvplan.measure.decoder.rope import amplitude, sharpness
from kvplan.specs.layers import Rope

NAME = "llama-odd-heads"


@pytest.fixture
def folder(tmp_path) -> Path:
    """A copy of a checkpoint, to be damaged."""
    return Path(shutil.copytree(saved(NAME), tmp_path / "checkpoint"))


def load(folder: Path, case: Case = CASES[NAME], **options) -> Decoder:
    decoder = build_decoder(case.model, numerics=checkpoint_numerics(folder), **options)
    load_checkpoint(decoder, folder)
    return decoder


def refusal(folder: Path, case: Case = CASES[NAME]) -> str:
    with pytest.raises(InputError) as refused:
        load(folder, case)
    return str(refused.value).replace(str(folder), "DIR")


def change_config(folder: Path, **fields) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def change_tensors(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Replace, add (`a__b` is the name a.b) or, with None, remove tensors."""
    path = folder / "model.safetensors"
    content = load_file(path)
    for key, tensor in tensors.items():
        name = key.replace("__", ".")
        content.pop(name, None)
        if tensor is not None:
            content[name] = tensor
    save_file({name: tensor.clone() for name, tensor in content.items()}, path)


def test_shards_give_what_one_file_gives(tmp_path):
    hub_model(NAME).save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    assert torch.equal(load(tmp_path)(prompts(1, 5)), loaded(NAME)(prompts(1, 5)))


def test_other_formats_are_converted(folder):
    deepcopy(hub_model(NAME)).to(torch.bfloat16).save_pretrained(folder)
    assert furthest(load(folder)(prompts(1, 5)), loaded(NAME)(prompts(1, 5))) < 0.2  # 8 bits of mantissa
    assert load(folder, dtype=torch.bfloat16).embedding.dtype == torch.bfloat16


def test_layers_that_were_cut_off_are_passed_over(folder):
    assert len(load(folder, layers=1).layers) == 1


def test_leading_dense_layers_alone():
    assert len(load(saved("deepseek-v3"), CASES["deepseek-v3"], layers=1).layers) == 1  # and no expert contradicts


def test_routing_and_stretching_come_from_the_config():
    lite = {  # config.json of deepseek-ai/DeepSeek-V2-Lite
        "model_type": "deepseek_v2", "rms_norm_eps": 1e-6, "n_group": 1, "topk_group": 1, "topk_method": "greedy",
        "norm_topk_prob": False, "routed_scaling_factor": 1.0,
        "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707},
    }  # fmt: skip
    found = numerics_from(lite)
    assert found == Numerics(norm_eps=1e-6, renormalise=False, mscale=0.707, mscale_all_dim=0.707)
    assert amplitude(Rope(scaling="yarn", factor=40.0), found) == 1
    by_hand = (0.1 * 0.707 * 3.6889 + 1) ** 2  # ln 40 = 3.6889
    assert sharpness(Rope(scaling="yarn", factor=40.0), found) == pytest.approx(by_hand, rel=1e-5)


def test_a_packed_copy_of_a_checkpoint(folder):
    decoder = load(folder)
    pack_linears(
        decoder, choose_layouts(decoder, layouts=["onednn"])
    )  # or a sentence why not; either way the logits stay
    assert furthest(decoder(prompts(1, 5)), loaded(NAME)(prompts(1, 5))) <= 1.7e-5


def test_all_that_is_wrong_is_told_at_once(folder):
    change_tensors(
        folder,
        model__norm__weight=None,
        model__layers__1__mlp__up_proj__weight=torch.zeros(80, 47),
        model__layers__0__self_attn__q_norm__weight=torch.zeros(8),
        model__layers__0__self_attn__rotary_emb__inv_freq=torch.zeros(4),  # a buffer of old checkpoints
    )
    assert refusal(folder).splitlines() == [
        "DIR does not hold tiny: 3 problems",
        "  missing: norm.weight 48",
        "  shape: model.layers.1.mlp.up_proj.weight is 80 x 47, expected 80 x 48",
        "  left over: model.layers.0.self_attn.q_norm.weight 8",
    ]


def test_a_long_list_is_cut(folder):
    (folder / "model.safetensors").unlink()
    save_file({f"x{i}": torch.zeros(1) for i in range(30)}, folder / "model.safetensors")
    lines = refusal(folder).splitlines()
    assert (lines[0], len(lines), lines[-1]) == ("DIR does not hold tiny: 51 problems", 22, "  ... and 31 more")


def test_a_second_copy_of_a_tied_head_is_passed_over(tmp_path):
    folder = Path(shutil.copytree(saved("llama-yarn-tied"), tmp_path / "tied"))
    change_tensors(folder, lm_head__weight=torch.zeros(97, 48))
    assert torch.equal(load(folder, CASES["llama-yarn-tied"])(prompts(1, 5)), loaded("llama-yarn-tied")(prompts(1, 5)))


def test_a_truncated_file(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert refusal(folder).startswith("DIR/model.safetensors is not a whole safetensors file (")
    assert refusal(folder).endswith("); copy or download it again")


@pytest.mark.parametrize("content", [b"", b"\x10\0\0\0\0\0\0\0{}", b"not safetensors at all"])
def test_no_safetensors_file(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    assert "DIR/model.safetensors is not a whole safetensors file" in refusal(folder)


def test_quantised_tensors_are_refused(folder):
    change_tensors(folder, model__norm__weight=torch.ones(48, dtype=torch.int8))
    assert refusal(folder) == (
        "DIR does not hold tiny: format: model.norm.weight is I8; quantised checkpoints are not read"
    )


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        (
            {"weight_map": {"a": "gone.safetensors"}},
            "DIR lacks gone.safetensors, named in model.safetensors.index.json",
        ),
        (
            {"weight_map": {"a": "../other.safetensors"}},
            "expected a weight_map from tensors to files of the same folder",
        ),
        ({}, "expected a weight_map from tensors to files of the same folder"),
        ([], "DIR/model.safetensors.index.json: expected an object"),
    ],
)
def test_an_index_that_cannot_be_followed(folder, index, sentence):
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert sentence in refusal(folder)


def test_folders_without_the_files(folder):
    (folder / "model.safetensors").unlink()
    assert refusal(folder) == "DIR has neither model.safetensors nor model.safetensors.index.json"
    (folder / "config.json").write_text("{")
    assert "DIR/config.json is not JSON" in refusal(folder)
    (folder / "config.json").unlink()
    assert refusal(folder) == "DIR/config.json cannot be read: No such file or directory"
    assert "no such folder; give one with config.json and safetensors files" in refusal(folder / "nowhere")


def test_unknown_architectures(folder):
    change_config(folder, model_type="mamba")
    assert refusal(folder) == (
        "DIR: checkpoints of type 'mamba' are not read; "
        "known are deepseek_v2, deepseek_v3, gemma, glm4_moe_lite, kimi_k2, llama, mistral, mixtral, qwen2, qwen3, "
        "qwen3_moe"
    )


def test_unknown_activations(folder):
    change_config(folder, hidden_act="tanh")
    assert "config.json: unknown hidden_act 'tanh'; known are silu, gelu," in refusal(folder)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"rope_parameters": {"rope_theta": 10000.0}}, "config.json: rope theta 10000, expected 500000"),
        (
            {"rope_parameters": None, "rope_theta": 500000.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
            "  config.json: rope type linear, expected none\n  config.json: rope factor 2, expected none",
        ),
        ({"sliding_window": 5}, "config.json: sliding window 5, expected none"),
        ({"num_experts_per_tok": 2}, "config.json: experts a token 2, expected none"),
    ],
)
def test_what_tensors_cannot_tell(folder, fields, sentence):
    change_config(folder, **fields)
    assert sentence in refusal(folder)


def test_a_window_that_is_switched_off_is_none(folder):
    change_config(folder, sliding_window=4096, use_sliding_window=False)
    load(folder)


def test_positions_of_another_model(folder):
    other = replace(CASES[NAME], model=dense(attention(6, 3), rope=Rope(theta=10000.0)))
    assert "rope theta 500000, expected 10000" in refusal(folder, other)


def test_numerics_are_the_callers_to_pass(folder):
    change_config(folder, rms_norm_eps=1e-3)
    with pytest.raises(ValueError, match="build the decoder with numerics=checkpoint_numerics"):
        load_checkpoint(build_decoder(CASES[NAME].model), folder)


@pytest.mark.parametrize(
    ("hub", "ours"),
    [
        ("model.embed_tokens.weight", "embed_tokens.weight"),
        ("model.layers.3.block_sparse_moe.gate.weight", "layers.3.mlp.gate.weight"),
        ("model.layers.3.block_sparse_moe.experts.7.w2.weight", "layers.3.mlp.experts.7.down_proj.weight"),
        ("lm_head.weight", "lm_head.weight"),
    ],
)
def test_names(hub, ours):
    assert our_name(hub) == ours


def test_a_tokenizer(folder):
    tokenizers = pytest.importorskip("tokenizers", reason="a prompt needs the tokenizers package")
    with pytest.raises(InputError, match=r"has no tokenizer\.json, which a prompt needs"):
        load_tokenizer(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json is no tokenizer"):
        load_tokenizer(folder)
    words = tokenizers.models.WordLevel({"down": 0, "up": 1}, unk_token="down")
    made = tokenizers.Tokenizer(words)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    assert load_tokenizer(folder).encode("up down up").ids == [1, 0, 1]


@pytest.mark.parametrize(("package", "use"), [("safetensors", load), ("tokenizers", load_tokenizer)])
def test_packages_that_are_not_installed(folder, monkeypatch, package, use):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=f"pip install {package}"):
        use(folder)

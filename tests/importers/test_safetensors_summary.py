"""What tensors are by their names: components, packed weights counted unpacked, agreement with the config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import Tensors, llama, model_folder, write

from kvplan.errors import InputError, SpecError
from kvplan.importers.checkpoint import import_model, read_checkpoint
from kvplan.importers.safetensors import TensorInfo
from kvplan.importers.safetensors_names import component_of, is_scale, place, summary
from kvplan.planning.agreement import agreement, found_facts

# names as transformers' modules have them
NAMES = {
    "embedding": (
        "model.embed_tokens.weight", "transformer.wte.weight", "transformer.wpe.weight", "gpt_neox.embed_in.weight",
        "backbone.embeddings.weight", "model.decoder.embed_positions.weight", "model.tok_embeddings.weight",
        "transformer.embedding.word_embeddings.weight", "model.embed_tokens_per_layer.weight",
    ),
    "head": ("lm_head.weight", "embed_out.weight", "output.weight", "transformer.output_layer.weight"),
    "attention": (
        "model.layers.0.self_attn.q_proj.weight", "transformer.h.0.attn.c_attn.weight",
        "model.layers.0.self_attn.sinks",
        "transformer.blocks.0.norm_attn_norm.attn.Wqkv.weight", "transformer.h.0.attn.c_proj.bias",
        "gpt_neox.layers.0.attention.query_key_value.weight", "backbone.layers.7.mixer.q_proj.weight",
        "model.layers.0.self_attn.indexer.wq_b.weight", "language_model.model.layers.0.self_attn.o_proj.weight",
    ),
    "norms": (
        "model.layers.0.input_layernorm.weight", "model.norm.weight", "transformer.h.0.ln_1.weight",
        "transformer.ln_f.bias", "model.layers.0.self_attn.q_norm.weight", "backbone.layers.0.mixer.norm.weight",
        "model.decoder.layers.0.self_attn_layer_norm.weight", "model.layers.0.altup.router_norm.weight",
        "model.layers.0.self_attn.indexer.k_norm.bias", "model.layers.0.linear_attn.norm.weight",
        "transformer.blocks.0.norm_1.weight", "model.language_model.layers.0.layer_scalar",
    ),
    "mlp": (
        "model.layers.0.mlp.gate_proj.weight", "transformer.h.0.mlp.c_fc.weight",
        "model.layers.0.feed_forward.w1.weight",
        "gpt_neox.layers.0.mlp.dense_h_to_4h.weight", "model.decoder.layers.0.fc1.weight",
        "backbone.layers.7.mixer.up_proj.weight",
    ),
    "experts": (
        "model.layers.0.mlp.experts.3.down_proj.weight", "model.layers.0.mlp.experts.gate_up_proj_blocks",
        "model.layers.0.block_sparse_moe.experts.0.w1.weight", "model.layers.0.block_sparse_moe.input_linear.weight",
        "transformer.blocks.0.ffn.experts.mlp.w1", "backbone.layers.7.mixer.experts.0.up_proj.weight",
        "model.layers.0.feed_forward.experts.gate_up_proj",
    ),
    "shared_experts": (
        "model.layers.0.mlp.shared_experts.up_proj.weight", "model.layers.0.mlp.shared_expert.up_proj.weight",
        "model.layers.0.shared_mlp.input_linear.weight", "model.layers.0.feed_forward.shared_expert.up_proj.weight",
    ),
    "router": (
        "model.layers.0.mlp.gate.weight", "model.layers.0.mlp.gate.e_score_correction_bias",
        "model.layers.0.mlp.router.weight", "model.layers.0.mlp.shared_expert_gate.weight",
        "model.layers.0.block_sparse_moe.gate.weight", "model.layers.0.feed_forward.router.weight",
        "model.layers.0.mlp.gate.wg.weight", "model.layers.0.router.per_expert_scale",
    ),
    "state": (
        "backbone.layers.0.mixer.in_proj.weight", "backbone.layers.0.mixer.conv1d.weight",
        "backbone.layers.0.mixer.A_log", "backbone.layers.0.mixer.D", "model.layers.0.mamba.D",
        "model.layers.0.conv.in_proj.weight", "model.layers.0.conv.conv.weight",
        "model.layers.0.linear_attn.in_proj_qkvz.weight", "model.layers.0.linear_attn.dt_bias",
    ),
    "other": ("model.layers.0.per_layer_input_gate.weight", "model.layers.0.laurel.linear_left.weight"),
    "tower": (
        "vision_tower.encoder.layers.0.self_attn.q_proj.weight", "model.visual.blocks.0.attn.qkv.weight",
        "multi_modal_projector.linear_1.weight", "audio_tower.layers.0.fc1.weight", "model.embed_vision.x.weight",
    ),
    "mtp": ("mtp.layers.0.mlp.gate.weight", "model.layers.61.eh_proj.weight", "model.layers.61.mlp.gate.weight"),
    "buffers": ("model.layers.0.self_attn.rotary_emb.inv_freq", "h.0.attn.bias", "transformer.h.0.attn.masked_bias"),
}  # fmt: skip


@pytest.mark.parametrize(("component", "name"), [(c, name) for c, names in NAMES.items() for name in names])
def test_component_of_a_name(component: str, name: str) -> None:
    assert component_of(name, layers=61) == component


def made(tensors: Tensors) -> list[TensorInfo]:
    return [TensorInfo(name, dtype, shape, 0, 0) for name, (dtype, shape) in tensors.items()]


M = "model.layers.0.mlp.down_proj"
E = "model.layers.0.mlp.experts"
# a matrix of 64 outputs by 256 inputs has 16,384 weights, however it is packed; layouts as the libraries write them
PACKED: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
    "gptq-4": {
        "qweight": ("I32", (32, 64)), "qzeros": ("I32", (2, 8)), "scales": ("F16", (2, 64)), "g_idx": ("I32", (256,)),
    },
    "gptq-8": {
        "qweight": ("I32", (64, 64)), "qzeros": ("I32", (2, 16)), "scales": ("F16", (2, 64)), "g_idx": ("I32", (256,)),
    },
    "gptq-no-g_idx": {"qweight": ("I32", (64, 64)), "qzeros": ("I32", (2, 16)), "scales": ("F16", (2, 64))},
    "awq": {"qweight": ("I32", (256, 8)), "qzeros": ("I32", (2, 8)), "scales": ("F16", (2, 64))},
    "fp8": {"weight": ("F8_E4M3", (64, 256)), "weight_scale": ("F32", ()), "input_scale": ("F32", ())},
    "fp8-block": {"weight": ("F8_E4M3", (64, 256)), "weight_scale_inv": ("F32", (1, 2))},
    "nvfp4": {"weight": ("U8", (64, 128)), "weight_scale": ("F8_E4M3", (64, 16)), "weight_scale_2": ("F32", ())},
    "int4": {"weight_packed": ("I32", (64, 32)), "weight_scale": ("BF16", (64, 8)), "weight_shape": ("I64", (2,))},
    "nvfp4-ct": {
        "weight_packed": ("U8", (64, 128)), "weight_scale": ("F8_E4M3", (64, 16)), "weight_global_scale": ("F32", (1,)),
    },
    "nf4": {
        "weight": ("U8", (8192, 1)), "weight.absmax": ("U8", (256,)), "weight.quant_map": ("F32", (16,)),
        "weight.nested_absmax": ("F32", (1,)), "weight.nested_quant_map": ("F32", (256,)),
        "weight.quant_state.bitsandbytes__nf4": ("U8", (84,)),
    },
    "int8": {"weight": ("I8", (64, 256)), "SCB": ("F32", (64,)), "weight_format": ("U8", ())},
}  # fmt: skip


@pytest.mark.parametrize("layout", PACKED)
def test_packed_weights_are_counted_unpacked(layout: str) -> None:
    found = place(made({f"{M}.{name}": each for name, each in PACKED[layout].items()}))
    assert sum(each.parameters for each in found) == 64 * 256
    assert {each.component for each in found} == {"mlp"}
    assert sum(each.packed == "scale" for each in found) == len(found) - 1


def test_mxfp4_blocks_and_their_bias() -> None:
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {"gate_up_proj_blocks": ("U8", (4, 64, 8, 16))}
    tensors["gate_up_proj_scales"] = ("U8", (4, 64, 8))
    tensors["gate_up_proj_bias"] = ("BF16", (4, 64))
    found = place(made({f"{E}.{name}": each for name, each in tensors.items()}))
    assert [each.parameters for each in found] == [4 * 64 * 256, 0, 4 * 64]


def test_eight_bits_in_int32_are_what_the_config_says() -> None:
    tensors = made({f"{M}.weight_packed": ("I32", (64, 64)), f"{M}.weight_scale": ("BF16", (64, 1))})
    assert sum(each.parameters for each in place(tensors, bits=8)) == 64 * 256


def test_scales_of_nothing_are_parameters() -> None:
    assert not is_scale("model.layers.0.layer_scale", {"model.layers.0.layer_scale"})
    assert not is_scale("model.layers.0.router.scale", {"model.layers.0.router.scale"})
    assert is_scale("model.layers.0.self_attn.k_scale", {"model.layers.0.self_attn.k_scale"})
    assert is_scale("a.k_proj.k_scale", {"a.k_proj.weight"})


def test_summary_is_exact(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "a")
    found = read_checkpoint(str(folder))
    layer = 4 * 64 * 64 - 2 * 32 * 64 + 3 * 128 * 64 + 2 * 64
    assert sum(each.parameters for each in found.tensors) == 2 * 256 * 64 + 64 + 2 * layer
    info = [TensorInfo("lm_head.weight", "BF16", (8, 4), 0, 64), TensorInfo("model.norm.weight", "F32", (4,), 0, 16)]
    assert summary(info)._asdict() == {
        "tensors": 2,
        "bytes": 80,
        "parameters": {"head": 32, "norms": 4},
        "component_bytes": {"head": 64, "norms": 16},
        "dtype_bytes": {"BF16": 64, "F32": 16},
        "scale_bytes": 0,
        "packed": (),
    }


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["component"]: row for row in agreement(read_checkpoint(str(folder)))}


def test_config_and_file_agree(tmp_path: Path) -> None:
    found = rows(model_folder(tmp_path / "a"))
    assert list(found) == ["embedding", "norms", "head", "attention", "mlp"]
    assert {row["why"] for row in found.values()} == {"agrees"}
    assert {row["difference"] for row in found.values()} == {0}


def test_every_difference_has_its_reason(tmp_path: Path) -> None:
    tensors = {**llama(), "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (8,))}
    tensors |= {"model.layers.2.eh_proj.weight": ("BF16", (64, 128)), "vision_tower.a.weight": ("BF16", (3, 3))}
    tensors |= {"model.embed_tokens.weight": ("BF16", (264, 64)), "strange.weight": ("BF16", (5,))}
    tensors |= {"model.layers.0.mlp.up_proj.weight": ("BF16", (130, 64))}
    tensors |= {name: ("F32", shape) for name, (_, shape) in llama().items() if "_norm" in name or "layernorm" in name}
    found = rows(model_folder(tmp_path / "a", tensors, tie_word_embeddings=True))
    said = {name: (row["difference"], row["why"]) for name, row in found.items()}
    assert said["head"] == (None, "the head is the embedding, and the file stores it a second time; servers keep one")
    assert said["embedding"] == (8 * 64, "+8 rows beside the config's vocabulary of 256")
    assert said["mtp"][1].startswith("layers for prediction")
    assert said["tower"][1].startswith("vision, audio")
    assert said["buffers"][1].startswith("tables that a server computes")
    assert said["norms"] == (0, "stored as BF16, F32, served as the config says")
    assert said["mlp"] == (2 * 64, "not explained: the shapes of the file are not those of the config")
    assert said["other"] == (None, "not in the config")
    assert said["attention"] == (0, "agrees")


def test_scales_explain_bytes(tmp_path: Path) -> None:
    tensors = llama()
    for name, (_, shape) in llama().items():
        if "_proj" in name:
            tensors |= {name: ("F8_E4M3", shape), f"{name}_scale": ("F32", ()), name[:-6] + "input_scale": ("F32", ())}
    said = {"quant_method": "fp8", "activation_scheme": "static"}
    found = rows(model_folder(tmp_path / "a", tensors, quantization_config=said))
    assert found["mlp"]["difference"] == 0
    assert found["mlp"]["why"] in ("agrees", f"scales and zero points: {2 * 6 * 4:,} bytes in the file")
    facts = found_facts(read_checkpoint(str(tmp_path / "a")))
    assert facts["file_scale_bytes"] == 2 * 7 * 2 * 4


def test_a_folder_is_its_config(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "Small-Model")
    model = import_model(str(folder))
    assert model.name == "small-model"
    assert model == import_model(str(folder / "config.json")) == import_model(str(folder / "model.safetensors"))
    (folder / "model.safetensors").write_bytes(b"damaged")  # not looked at where only the model is wanted
    assert import_model(str(folder)) == model
    with pytest.raises(SpecError, match="7 bytes are too few"):
        read_checkpoint(str(folder))


def test_what_makes_no_model_is_refused_with_advice(tmp_path: Path) -> None:
    for name in ("a.bin", "a.pt", "a.pth", "a.ckpt", "a.pkl", "A.BIN"):
        (tmp_path / name).write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
        with pytest.raises(InputError, match="pickle, which runs code when it is opened; name its folder"):
            import_model(str(tmp_path / name))
    with pytest.raises(InputError, match=r"no config.json, safetensors or GGUF file; its .* are not opened"):
        import_model(str(tmp_path))
    alone = write(tmp_path / "model.safetensors", llama())
    with pytest.raises(InputError, match="tensors alone do not say heads or windows"):
        import_model(str(alone))
    assert next(row["why"] for row in agreement(read_checkpoint(str(alone)))) == "no config to compare with"
    (tmp_path / "model.safetensors").unlink()
    for name in ("x.gguf", "y.gguf", "mmproj-x.gguf"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=r"2 GGUF models; name one of the files: x.gguf, y.gguf"):
        import_model(str(tmp_path))
    assert not (tmp_path / "pwned").exists()

"""Model files: how `layer`, `kinds`, `layers` and `per_layer` go together, and what is said of a bad file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.errors import SpecError
from kvplan.specs.layers import Attention, Rope
from kvplan.specs.model import ModelSpec, load_model_file, load_model_node
from kvplan.specs.reader import read_text

SMALL = """\
name: small
hidden_size: 512
vocab_size: 1000
layers: 2
layer:
  attention: {heads: 8, kv_heads: 2}
  mlp: {intermediate_size: 1024}
"""

KINDS = """\
name: kinds
hidden_size: 512
vocab_size: 1000
layers: 2 (2 local, global), reuse
layer:
  attention: {heads: 8, kv_heads: 2}
  mlp: {intermediate_size: 1024}
kinds:
  local: {attention: {window: 128, rope: {theta: 10000}}}
  global: {}
  reuse: {attention: {cache_of: global}}
"""


def load(text: str) -> ModelSpec:
    return load_model_node(read_text(text, "m.yaml"), "m.yaml")


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as error:
        load(text)
    lines = str(error.value).splitlines()
    return [line.strip() for line in (lines[1:] if len(lines) > 1 else lines)]


def attention(spec: ModelSpec, layer: int) -> Attention:
    found = spec.stack[layer].attention
    assert found is not None
    return found


def test_a_small_file_fills_in_what_follows() -> None:
    spec = load(SMALL)
    a = attention(spec, 0)
    assert (a.heads, a.kv_heads, a.head_dim, a.v_head_dim) == (8, 2, 64, 64)
    assert (spec.weights, spec.norm, spec.tied, spec.stack[0].norms) == ("bf16", "rms", False, 2)
    assert spec.stack_kinds == ("", "")
    assert spec.stack[0] is spec.stack[1]
    assert (spec.layer, spec.kinds, spec.per_layer) == (None, None, None)


def test_kinds_add_to_what_every_layer_has() -> None:
    spec = load(KINDS)
    assert spec.stack_kinds == ("local", "local", "global", "local", "local", "global", "reuse")
    assert attention(spec, 0) == Attention(
        heads=8, kv_heads=2, head_dim=64, v_head_dim=64, window=128, rope=Rope(theta=10000)
    )
    assert [attention(spec, i).reach for i in (0, 2, 6)] == [128, None, None]
    assert attention(spec, 6).cache_of == "global"
    assert len({id(layer) for layer in spec.stack}) == 3


def test_columns_of_values_make_layers_differ() -> None:
    text = SMALL.replace("{heads: 8, kv_heads: 2}", "{head_dim: 64}") + "per_layer:\n"
    spec = load(text + "  attention.heads: [8, 4]\n  mlp.intermediate_size: [512, 1024]\n")
    assert [attention(spec, i).heads for i in (0, 1)] == [8, 4]
    assert [layer.mlp and layer.mlp.intermediate_size for layer in spec.stack] == [512, 1024]


def test_a_column_can_bring_a_section_that_no_layer_has() -> None:
    text = SMALL.replace("  mlp: {intermediate_size: 1024}\n", "per_layer: {mlp.intermediate_size: [512, 512]}\n")
    spec = load(text)
    assert spec.stack[0].mlp is not None
    assert spec.stack[0] is spec.stack[1]


def test_a_kind_with_the_weights_of_another_has_its_shape() -> None:
    text = KINDS.replace("reuse: {attention: {cache_of: global}}", "reuse: {weights_of: local}")
    spec = load(text)
    assert attention(spec, 6) == attention(spec, 0)
    assert (spec.stack[6].weights_of, spec.stack[0].weights_of) == ("local", None)


def test_two_shared_blocks_of_one_shape_stay_two() -> None:
    spec = load(KINDS.replace("local), reuse", "local), reuse").replace("reuse: {attention: {cache_of: global}}", "reuse: {norms: 3}"))
    assert spec.stack_kinds.count("local") == 4


# Each file is SMALL or KINDS with one mistake; the line is that of the mistake.
BAD = [
    pytest.param(SMALL.replace("kv_heads: 2", "kv_heads: 3"),
                 "m.yaml:6: layer.attention: heads (8) must be a multiple of kv_heads (3); possible: 1, 2, 4, 8",
                 id="kv-heads"),
    pytest.param(SMALL.replace("heads: 8, kv_heads: 2", "heads: 7"),
                 "m.yaml:2: hidden_size: 512 does not divide by 7 heads: give attention.head_dim", id="head-width"),
    pytest.param(SMALL.replace("intermediate_size", "intermediate"),
                 "m.yaml:7: layer.mlp: unknown key 'intermediate'; did you mean 'intermediate_size'?", id="typo"),
    pytest.param(SMALL.replace("layers: 2", "layers: 4097"),
                 "m.yaml:4: layers: expected a whole number from 1 to 4096, got 4097", id="too-many-layers"),
    pytest.param(SMALL.replace("layers: 2", "layers: 2 (a"), "m.yaml:4: layers: a bracket is not closed", id="order"),
    pytest.param(SMALL.replace("layers: 2", "layers: 2 full"),
                 "m.yaml:4: layers: unknown kind 'full'; describe it in kinds", id="no-kinds"),
    pytest.param("\n".join(SMALL.splitlines()[:4]) + "\n",
                 "m.yaml:1: top level: missing key 'layer' (what every layer has)", id="no-layer"),
    pytest.param(SMALL.replace("kv_heads: 2", "window: 8, chunk: 8"),
                 "m.yaml:6: layer.attention: window and chunk exclude each other; keep the one the model uses",
                 id="window-and-chunk"),
    pytest.param(SMALL.replace("mlp: {", "moe: {experts: 4, active: 5, "),
                 "m.yaml:7: layer.moe: active (5) cannot be more than experts (4)", id="active-experts"),
    pytest.param(SMALL + "per_layer: {mlp.intermediate_size: [1, 2, 3]}\n",
                 "m.yaml:8: per_layer.mlp.intermediate_size: 3 values for 2 layers; give one for each", id="column"),
    pytest.param(SMALL + "per_layer: {mlp.width: [1, 2]}\n",
                 "m.yaml:8: layer.mlp: unknown key 'width'", id="column-typo"),
    pytest.param(KINDS.replace("global), reuse", "globl), reuse"),
                 "m.yaml:4: layers: unknown kind 'globl'; did you mean 'global'?", id="unknown-kind"),
    pytest.param(KINDS + "  spare: {}\n", "m.yaml:12: kinds.spare: this kind is not used in layers", id="unused-kind"),
    pytest.param(KINDS.replace("layers: 2 (2 local, global), reuse", "layers: 7"),
                 "m.yaml:4: layers: with kinds, write their order and not only a count: '2 (local, global, reuse)', for example",
                 id="count-with-kinds"),
    pytest.param(KINDS.replace("cache_of: global", "cache_of: glob"),
                 "m.yaml:11: kinds.reuse.attention.cache_of: no 'glob' layer comes before this one; did you mean 'global'?",
                 id="cache-of-unknown"),
    pytest.param(KINDS.replace("2 (2 local, global), reuse", "2 local, reuse, global"),
                 "m.yaml:11: kinds.reuse.attention.cache_of: no 'global' layer comes before this one", id="cache-of-later"),
    pytest.param(KINDS.replace("cache_of: global", "cache_of: global, kv_heads: 4"),
                 "m.yaml:11: kinds.reuse.attention.cache_of: the cache of 'global' has other heads or widths than this kind"
                 " reads", id="cache-of-other-width"),
    pytest.param(KINDS.replace("{attention: {cache_of: global}}", "{weights_of: globe}"),
                 "m.yaml:11: kinds.reuse.weights_of: no 'globe' layer comes before this one; did you mean 'global'?",
                 id="weights-of-unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_mistake_is_told_with_its_line_and_the_way_out(text: str, message: str) -> None:
    found = problems(text)
    if "unknown kind 'globl'" in message:  # then the right name is not used
        assert found.pop() == "m.yaml:10: kinds.global: this kind is not used in layers"
    assert found == [message]


def test_all_mistakes_are_told_at_once() -> None:
    text = KINDS.replace("hidden_size: 512", "hidden_size: big").replace("reuse\n", "resue\n").replace("heads: 8", "heads: 0")
    assert problems(text) == [
        "m.yaml:2: hidden_size: expected a whole number of at least 1, got text 'big'",
        "m.yaml:4: layers: unknown kind 'resue'; did you mean 'reuse'?",
        "m.yaml:6: kinds.local.attention.heads: expected a whole number of at least 1, got 0",
        "m.yaml:11: kinds.reuse: this kind is not used in layers",
    ]


def test_a_mistake_in_what_every_layer_has_is_told_once() -> None:
    assert problems(KINDS.replace("kv_heads: 2", "kvheads: 2")) == [
        "m.yaml:6: kinds.local.attention: unknown key 'kvheads'; did you mean 'kv_heads' or 'heads'?"
    ]


def test_parts_of_the_wrong_type_are_told_once() -> None:
    assert problems(SMALL.replace("layers: 2", "layers: [2]").replace("mlp: {intermediate_size: 1024}", "mlp: 1024")) == [
        "m.yaml:4: layers: expected a whole number from 1 to 4096 or text, got a list",
        "m.yaml:7: layer.mlp: expected a mapping, got number 1024",
    ]
    assert problems("name: x\nhidden_size: 8\nvocab_size: 8\nlayers: 2\nlayer: 5\n") == [
        "m.yaml:5: layer: expected a mapping, got number 5"
    ]


def test_problems_of_the_yaml_and_of_the_model_come_together(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(SMALL.replace("1000", "0x10").replace("kv_heads: 2", "kv_heads: 3"), encoding="utf-8")
    with pytest.raises(SpecError) as error:
        load_model_file(path)
    assert [(p.line, p.path) for p in error.value.problems] == [(3, "vocab_size"), (6, "layer.attention")]


def test_the_description_has_no_layers() -> None:
    description = load(SMALL).to_dict()
    assert description["name"] == "small"
    assert "stack" not in description

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


REUSE = "{attention: {cache_of: global}}"
CACHE_OF = "11: kinds.reuse.attention.cache_of: "

# SMALL or KINDS with one change, and what is said of it, line first.
BAD = [
    ("kv-heads", SMALL, "kv_heads: 2", "kv_heads: 3",
     "6: layer.attention: heads (8) must be a multiple of kv_heads (3); possible: 1, 2, 4, 8"),
    ("head-width", SMALL, "heads: 8, kv_heads: 2", "heads: 7",
     "2: hidden_size: 512 does not divide by 7 heads: give attention.head_dim"),
    ("typo", SMALL, "kv_heads: 2", "kv_head: 2",
     "6: layer.attention: unknown key 'kv_head'; did you mean 'kv_heads' or 'v_head_dim' or 'heads'?"),
    ("too-many-layers", SMALL, "layers: 2", "layers: 4097",
     "4: layers: expected a whole number from 1 to 4096, got 4097"),
    ("order", SMALL, "layers: 2", "layers: 2 (a", "4: layers: a bracket is not closed"),
    ("no-kinds", SMALL, "layers: 2", "layers: 2 full", "4: layers: unknown kind 'full'; describe it in kinds"),
    ("no-layer", SMALL, SMALL[SMALL.index("layer:") :], "", "1: top level: missing key 'layer' (what every layer has)"),
    ("window-and-chunk", SMALL, "kv_heads: 2", "window: 8, chunk: 8",
     "6: layer.attention: window and chunk exclude each other; keep the one the model uses"),
    ("active-experts", SMALL, "mlp: {", "moe: {experts: 4, active: 5, ",
     "7: layer.moe: active (5) cannot be more than experts (4)"),
    ("column", SMALL, "1024}\n", "1024}\nper_layer: {mlp.intermediate_size: [1, 2, 3]}\n",
     "8: per_layer.mlp.intermediate_size: 3 values for 2 layers; give one for each"),
    ("column-typo", SMALL, "1024}\n", "1024}\nper_layer: {mlp.width: [1, 2]}\n", "8: layer.mlp: unknown key 'width'"),
    ("unknown-kind", KINDS, "global), reuse", "globl), reuse",
     "4: layers: unknown kind 'globl'; did you mean 'global' or 'local'?"),
    ("far-kind", KINDS, "global), reuse", "xyz), reuse",
     "4: layers: unknown kind 'xyz'; kinds has local, global, reuse"),
    ("unused-kind", KINDS, "global: {}", "global: {}\n  spare: {}",
     "11: kinds.spare: this kind is not used in layers"),
    ("count-with-kinds", KINDS, "2 (2 local, global), reuse", "7",
     "4: layers: with kinds, write their order and not only a count: '2 (local, global, reuse)', for example"),
    ("cache-of-unknown", KINDS, "cache_of: global", "cache_of: glob",
     CACHE_OF + "no 'glob' layer comes before this one; did you mean 'global'?"),
    ("cache-of-later", KINDS, "2 (2 local, global), reuse", "2 local, reuse, global",
     CACHE_OF + "no 'global' layer comes before this one"),
    ("cache-of-other-width", KINDS, "cache_of: global", "cache_of: global, kv_heads: 4",
     CACHE_OF + "the cache of 'global' has other heads or widths than this kind reads"),
    ("cache-of-a-reader", KINDS, f"global: {{}}\n  reuse: {REUSE}",
     f"global: {{attention: {{cache_of: local}}}}\n  reuse: {REUSE}",
     CACHE_OF + "'global' layers have no cache of their own; name a kind that has"),
    ("weights-of-unknown", KINDS, REUSE, "{weights_of: globe}",
     "11: kinds.reuse.weights_of: no 'globe' layer comes before this one; did you mean 'global'?"),
    ("weights-of-a-borrower", KINDS, f"global: {{}}\n  reuse: {REUSE}",
     "global: {weights_of: local}\n  reuse: {weights_of: global}",
     "11: kinds.reuse.weights_of: 'global' layers have no weights of their own; name a kind that has"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "old", "new", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_mistake_is_told_with_its_line_and_the_way_out(text: str, old: str, new: str, message: str) -> None:
    assert old in text
    assert problems(text.replace(old, new)) == [f"m.yaml:{message}"]


def test_all_mistakes_are_told_at_once() -> None:
    text = (
        KINDS.replace("hidden_size: 512", "hidden_size: big")
        .replace("reuse\n", "resue\n")
        .replace("heads: 8", "heads: 0")
    )
    assert problems(text) == [
        "m.yaml:2: hidden_size: expected a whole number of at least 1, got text 'big'",
        "m.yaml:4: layers: unknown kind 'resue'; did you mean 'reuse'?",
        "m.yaml:6: kinds.local.attention.heads: expected a whole number of at least 1, got 0",
    ]


def test_a_mistake_in_what_every_layer_has_is_told_once() -> None:
    assert problems(KINDS.replace("kv_heads: 2", "kvheads: 2")) == [
        "m.yaml:6: kinds.local.attention: unknown key 'kvheads'; did you mean 'kv_heads' or 'heads'?"
    ]


def test_parts_of_the_wrong_type_are_told_once() -> None:
    assert problems(
        SMALL.replace("layers: 2", "layers: [2]").replace("mlp: {intermediate_size: 1024}", "mlp: 1024")
    ) == [
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

"""What a tensor of a Hugging Face checkpoint is, by its name and those beside it: component, and how many parameters.

A packed weight (int32 of GPTQ and AWQ, uint8 of NF4, NVFP4 and MXFP4) counts the weights in it; its scales, zero
points and indices count as bytes of its component and as no parameters.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kvplan.importers.safetensors import TensorInfo


class Placed(NamedTuple):
    """A tensor with its component, its parameters (0 for a scale), and what is packed in it."""

    tensor: TensorInfo
    component: str
    parameters: int
    packed: str = ""  # 4-bit weights in uint8, for example; empty for a plain tensor


class Summary(NamedTuple):
    """Exact sums of a checkpoint."""

    tensors: int
    bytes: int
    parameters: dict[str, int]  # by component
    component_bytes: dict[str, int]
    dtype_bytes: dict[str, int]
    scale_bytes: int
    packed: tuple[str, ...]


# The first pattern that a name matches gives the component. Words as transformers' modules have them.
_RULES: tuple[tuple[str, str], ...] = (
    ("buffers", r"inv_freq|\brotary_emb\b|masked_bias|position_ids|\battn\.bias$(?<!proj\.bias)|num_batches_tracked"),
    ("tower", r"\b(vision|visual|audio|vit|image_|multi_modal|multimodal|mm_|speech|img_|patch_merge|vq)\w*\b"),
    ("tower", r"\b(embed_(vision|audio)|talker|token2wav|code2wav|aligner|connector|resampler)\b"),
    ("mtp", r"^(model\.)?(mtp|nextn)\b|\bmtp_|\b(eh_proj|enorm|hnorm|shared_head)\b"),
    ("norms", r"norm\w*(\.(weight|bias))?$|\bln_?\w*\.(weight|bias)$|layer_scalar|\bscale_(shift|factor)"),
    ("shared_experts", r"\bshared_(experts?|mlp)\.(?!\w*norm)|_shared_expert\b"),
    ("router", r"\b(router\w*|shared_expert_gate|e_score_correction_bias|expert_bias|per_expert_scale)\b"),
    ("router", r"\b(mlp|moe|ffn|block_sparse_moe|feed_forward|mixer|moe_block)\.(gate|wg)\.\w+$|gate\.wg\b"),
    ("experts", r"\bexperts?\b|block_sparse_moe\.(input|output)_linear"),
    ("embedding", r"embed_tokens|\bembeddings?\b(?!.*layers)|word_embeddings|\bw[tp]e\b|embed_(in|positions)\b"),
    ("embedding", r"tok_embeddings|word_embed|project_in\b"),
    ("head", r"\blm_head\b|\bembed_out\b|^(model\.|transformer\.)?output\.weight$|output_layer|project_out\b"),
    ("other", r"altup|laurel|per_layer_"),
    ("state", r"\b(mamba\w*|linear_attn|ssm\w*|temporal_block)\b|\bconv\.\w|\bconv1d\b|\bA_log\b|\bdt_(proj|bias)\b"),
    ("state", r"\bmixer\.(in_proj|out_proj|x_proj|D)\b"),
    ("attention", r"attn|attention|\b[qkvo]_proj\b|\bindexer\b|\bsinks\b|\bquery_key_value\b"),
    ("mlp", r"mlp|feed_forward|\bffn\b|\bfc[12]\b|(gate|up|down)(_up)?_proj|dense_h_to|\bdense_4h|\bmoe\b"),
)
_COMPILED = tuple((component, re.compile(pattern)) for component, pattern in _RULES)
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d{1,6})\.")
# A tensor that belongs to a weight beside it: scales, zero points, indices, shapes, activation scales.
_SCALE = re.compile(
    r"(weight_scale(_inv|_2|_offset)?|input_(global_)?scale|weight_global_scale|output_scale|[kvqo]_scale|scale_inv"
    r"|scales?|qzeros|g_idx|weight_(zero_point|g_idx|shape)|absmax|nested_absmax|quant_map|nested_quant_map"
    r"|quant_state\.\w+|SCB|weight_format|activation_scale)$"
)


def place(tensors: Iterable[TensorInfo], layers: int | None = None, bits: int = 4) -> list[Placed]:
    """Each tensor with its component; layers from `layers` on are for prediction (MTP).

    `bits` is of compressed-tensors' packed int32, which no shape tells.
    """
    found = {tensor.name: tensor for tensor in tensors}
    components = {name: component_of(name, layers) for name in found}
    _gate_beside_projections(components)
    return [_placed(tensor, components[name], found, bits) for name, tensor in found.items()]


def component_of(name: str, layers: int | None = None) -> str:
    """The component of a tensor, or `other`."""
    for component, pattern in _COMPILED[:4]:
        if pattern.search(name):
            return component
    layer = _LAYER.search(name)
    if layer and layers is not None and int(layer[1]) >= layers:
        return "mtp"
    return next((component for component, pattern in _COMPILED[4:] if pattern.search(name)), "other")


def _gate_beside_projections(components: dict[str, str]) -> None:
    """A `gate` beside `up` and `down` is a projection of an MLP and not a router."""
    for name, component in components.items():
        if component == "router" and re.search(r"\.gate\.\w+$", name) and re.sub(r"\bgate\b", "up", name) in components:
            components[name] = "mlp"


def _placed(tensor: TensorInfo, component: str, found: Mapping[str, TensorInfo], bits: int) -> Placed:
    if component == "buffers":
        return Placed(tensor, component, 0)
    if is_scale(tensor.name, found):
        return Placed(tensor, component, 0, "scale")
    factor, what = _packed(tensor, found, bits)
    return Placed(tensor, component, tensor.elements * factor, what)


def is_scale(name: str, found: Collection[str]) -> bool:
    """Whether a tensor only belongs to a packed or scaled weight beside it."""
    match = _SCALE.search(name)
    if not match or (match.start() and name[match.start() - 1] not in "._"):
        return False
    module = name[: match.start()].rstrip("._")
    beside = ("", ".weight", ".qweight", ".weight_packed", "_blocks", ".blocks", *(f".{p}.weight" for p in ("k_proj",)))
    kv = match[0] in ("k_scale", "v_scale", "q_scale", "o_scale", "output_scale")
    return kv or any(module + ending in found for ending in beside)


def _packed(tensor: TensorInfo, found: Mapping[str, TensorInfo], bits: int) -> tuple[int, str]:
    """How many weights an element holds, and a word for it."""
    module, _, last = tensor.name.rpartition(".")
    if tensor.dtype == "I32" and last == "qweight":
        width = _qweight_bits(tensor, module, found)
        return 32 // width, f"int{width} in int32"
    if last == "weight_packed":
        return (2, "4-bit in uint8") if tensor.dtype == "U8" else (32 // bits, f"int{bits} in int32")
    if tensor.dtype in ("U8", "I8") and (last.endswith("_blocks") or last == "blocks"):
        return 2, "mxfp4 in uint8"
    if tensor.dtype == "U8" and last in ("weight", "gate_up_proj", "down_proj"):
        name = tensor.name
        if f"{name}.absmax" in found:
            return 2, "nf4 in uint8"
        if any(f"{name}{scale}" in found for scale in ("_scale", "_scale_2")):
            return 2, "nvfp4 in uint8"
    return 1, ""


def _qweight_bits(tensor: TensorInfo, module: str, found: Mapping[str, TensorInfo]) -> int:
    """GPTQ packs the inputs (`g_idx` has one entry each), AWQ the outputs (the scales' columns)."""
    index, scales, zeros = (found.get(f"{module}.{name}") for name in ("g_idx", "scales", "qzeros"))
    rows, columns = (*tensor.shape, 1, 1)[:2]
    outputs = scales.shape[-1] if scales and scales.shape else 0
    for packed, whole in (
        (rows, index.elements if index and outputs == columns else 0),
        (columns, outputs if outputs != columns else 0),
        (zeros.shape[-1] if zeros and zeros.shape else 0, outputs),
    ):
        if packed and whole and 32 * packed // whole in (2, 3, 4, 8):
            return 32 * packed // whole
    return 4


def summary(tensors: Iterable[TensorInfo], layers: int | None = None, bits: int = 4) -> Summary:
    """Exact bytes by component and type, and parameters by component."""
    parameters: dict[str, int] = {}
    component_bytes: dict[str, int] = {}
    dtype_bytes: dict[str, int] = {}
    placed = place(tensors, layers, bits)
    for each in placed:
        size = each.tensor.bytes
        parameters[each.component] = parameters.get(each.component, 0) + each.parameters
        component_bytes[each.component] = component_bytes.get(each.component, 0) + size
        dtype_bytes[each.tensor.dtype] = dtype_bytes.get(each.tensor.dtype, 0) + size
    return Summary(
        tensors=len(placed),
        bytes=sum(component_bytes.values()),
        parameters=parameters,
        component_bytes=component_bytes,
        dtype_bytes=dtype_bytes,
        scale_bytes=sum(each.tensor.bytes for each in placed if each.packed == "scale"),
        packed=tuple(dict.fromkeys(each.packed for each in placed if each.packed not in ("", "scale"))),
    )

"""What vLLM takes from the requested memory beside weights and cache, with a band around what rules cannot give.

Coefficients are fitted on start-up logs (tests/data/vllm_logs.csv; docs/vllm.md says how well they held):
bytes of the profile run for S sequences, V words, C batched tokens, hidden width H, MLP width F of the GPU.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from kvplan.engines.base import Budget, EngineOptions, Held
from kvplan.engines.vllm.rules import EARLIER_SAMPLER, LATER_SAMPLER, Flags, Rules, distinct_budgets, with_flags
from kvplan.engines.vllm.weights import FOUR_BIT, compute_bytes, under
from kvplan.units import GIB, Line

SOURCE = "vLLM profile run, fitted on logs"
TOWERS = ("weights/vision_tower", "weights/audio_tower")
WIDE_TOWER = ("qwen3_5", "qwen3_5_moe", "qwen3_6", "qwen3_vl", "qwen3_vl_moe")

# Half widths of the band, GiB: what held for 9 of 10 runs that the coefficients were not fitted on.
ACTIVATION_BAND = 0.15
NON_TORCH_BAND = 0.10
OTHER_CARD_BAND = 0.30  # not an H100
MOE_BAND, TOWER_BAND = 0.25, 0.25  # upwards only: kernels' work space
GRAPH_BAND = 0.5
WEIGHT_BAND = 0.01  # of 4-bit weights

# Beside the copies of the logits: copies of a step's activations, and a constant (0.025 and 0.044 GiB).
_BESIDE_LOGITS = {EARLIER_SAMPLER: (1.277, 26_843_546), LATER_SAMPLER: (1.195, 47_244_640)}


def divide(memory_bytes: int, held: Held, options: EngineOptions, rules: Rules, flags: Flags) -> Budget:
    """requested = ceil(memory * fraction); the cache gets what weights and overhead leave of it."""
    overhead = [*held.overhead, *engine_lines(held, options, rules, flags)]
    requested = ceil(memory_bytes * options.memory_fraction)
    terms: dict[str, int | float] = {
        "gpu_memory_bytes": memory_bytes,
        "memory_fraction": options.memory_fraction,
        "weights_bytes": sum(line.bytes for line in held.weights),
        "overhead_bytes": sum(line.bytes for line in overhead),
    }
    left = requested - int(terms["weights_bytes"]) - int(terms["overhead_bytes"])
    formula = "ceil(gpu_memory_bytes * memory_fraction) - weights_bytes - overhead_bytes"
    source = "vLLM: request_memory, determine_available_memory"
    lines = _with_bands(held) + overhead
    low = left - sum((line.bytes if line.high is None else line.high) - line.bytes for line in lines)
    high = left + sum(line.bytes - (line.bytes if line.low is None else line.low) for line in lines)
    kv = Line("kv_budget", left, formula, terms, source, low, high)
    share = {key: terms[key] for key in ("gpu_memory_bytes", "memory_fraction")}
    formula = "gpu_memory_bytes - ceil(gpu_memory_bytes * memory_fraction)"
    return Budget(overhead, kv, Line("unrequested", memory_bytes - requested, formula, share, source))


def divide_over(
    memory_bytes: int, held: Held, options: EngineOptions, rules: Rules, flags: Flags, *, versions: tuple[str, ...]
) -> Budget:
    """As `divide` under the rules that are assumed; the band reaches over all versions that the server may be of.

    Each version counts whole: none has the earlier sampler and takes graphs off, so their worst ends do not add up.
    """
    middle = divide(memory_bytes, held, options, rules, flags)
    each = [
        divide(memory_bytes, under(held, other), _fraction_of(other, options), with_flags(other, flags), flags)
        for other in distinct_budgets(versions)
    ]
    ends = [end for budget in (middle, *each) for end in (budget.kv.low, budget.kv.high) if end is not None]
    source = f"{middle.kv.source}; between: the ends of {versions[0]} to {versions[-1]}"
    kv = middle.kv._replace(low=min(ends), high=max(ends), source=source)
    return middle._replace(overhead=[_reaching(line, each) for line in middle.overhead], kv=kv)


def _fraction_of(rules: Rules, options: EngineOptions) -> EngineOptions:
    """A fraction that nobody gave is the version's own."""
    return replace(options, memory_fraction=rules.memory_fraction) if options.own_fraction else options


def _reaching(line: Line, budgets: list[Budget]) -> Line:
    """The line with the ends that it has under any of the versions; 0 where one does not have it."""
    if line.low is None or line.high is None:
        return line
    ends = [line.low, line.high]
    for budget in budgets:
        same = next((each for each in budget.overhead if each.name == line.name), None)
        ends += [same.low or 0, same.high or 0] if same else [0]
    return line._replace(low=min(ends), high=max(ends))


def _with_bands(held: Held) -> list[Line]:
    """The weights, with a band around those in 4 bit."""
    packed = {t.component for t in held.tensors if t.format.startswith(FOUR_BIT)}
    return [_four_bit(line) if line.name.removeprefix("weights/") in packed else line for line in held.weights]


def _four_bit(line: Line) -> Line:
    half = int(line.bytes * WEIGHT_BAND)
    return line._replace(low=line.bytes - half, high=line.bytes + half)


def engine_lines(held: Held, options: EngineOptions, rules: Rules, flags: Flags) -> list[Line]:
    """Activation peak, work space of experts and towers, memory outside PyTorch, CUDA graphs."""
    batched = _batched(options, rules)
    lines = [_activation(held, options, rules, flags)]
    lines += [line for line in (_experts(held, batched), _tower(held, batched, flags)) if line]
    lines.append(_non_torch(held, options, rules))
    if rules.graphs_reserved:
        lines.append(_graphs(held, options, rules, flags))
    return lines


def _batched(options: EngineOptions, rules: Rules) -> int:
    """Tokens of the profile run; V0 took the whole length where it did not cut prompts into chunks."""
    batched = options.max_batched_tokens or 0
    if rules.generation == 0 and options.max_model_len <= 32768:
        return max(batched, options.max_model_len)
    return batched


def _activation(held: Held, options: EngineOptions, rules: Rules, flags: Flags) -> Line:
    """The larger of a sampler run with S rows of logits and a forward run of C tokens."""
    model, size = held.rank.model, compute_bytes(held)
    mlp = max((layer.mlp.intermediate_size for layer in held.rank.layers if layer.mlp), default=0)
    batched = _batched(options, rules)
    terms: dict[str, int | float] = {"batched_tokens": batched, "mlp_width": mlp}
    terms["step_bytes"] = batched * model.hidden_size * size
    forward = "6 * batched_tokens * mlp_width + 4.25 * step_bytes"
    peak = 6 * batched * mlp + 4.25 * terms["step_bytes"]
    if _eight_bit(held):
        forward += " + batched_tokens * mlp_width"  # activations as int8 or fp8
        peak = peak + batched * mlp
    if not held.rank.holds_head:
        forward = "6 * batched_tokens * mlp_width + 7.1 * step_bytes"
        peak = 6 * batched * mlp + 7.1 * terms["step_bytes"]
        return _banded("overhead/activation_peak", ceil(peak), f"ceil({forward})", terms, ACTIVATION_BAND)
    seqs = options.max_seqs or 0
    factor = rules.sampler_factor + (0.5 if size == 4 else 0)  # fp32 logits are copied less
    terms |= {"sampler_factor": factor, "logits_bytes": 4 * min(seqs, batched) * model.vocab_size}
    step, rest = _BESIDE_LOGITS[rules.sampler_factor]
    terms |= {"step_factor": step, "constant": rest}
    sampler = factor * terms["logits_bytes"] + step * terms["step_bytes"] + rest
    formula = f"ceil(max(sampler_factor * logits_bytes + step_factor * step_bytes + constant, {forward}))"
    found = _banded("overhead/activation_peak", ceil(max(sampler, peak)), formula, terms, ACTIVATION_BAND)
    return _sampler_band(found, terms, peak, rules, flags)


def _sampler_band(line: Line, terms: dict[str, int | float], forward: float, rules: Rules, flags: Flags) -> Line:
    """The other form where a version has it too; less logits where their rows, or the second runner's, may be fewer."""
    half = int(ACTIVATION_BAND * GIB)
    low, high = line.low or 0, line.high or 0
    if rules.other_sampler:
        step, rest = _BESIDE_LOGITS[rules.other_sampler]
        other = int(max(rules.other_sampler * terms["logits_bytes"] + step * terms["step_bytes"] + rest, forward))
        low, high = min(low, other - half), max(high, other + half)
    if "max_seqs" in flags.unknown:  # one is the fewest
        step, rest = _BESIDE_LOGITS[rules.sampler_factor]
        low = min(low, int(max(step * terms["step_bytes"] + rest, forward)) - half)
    if rules.second_runner:  # its profile run leaves the logits as the model gives them, in 16 bit: #57926
        rows = 0 if "max_seqs" in flags.unknown else terms["logits_bytes"] / 2
        low = min(low, int(max(rows, forward)) - half)
    return line._replace(low=max(0, low), high=high)


def _eight_bit(held: Held) -> bool:
    return any(t.format in ("int8", "fp8", "fp8-channel", "fp8-block128") for t in held.tensors)


def _experts(held: Held, batched: int) -> Line | None:
    """Work space of the fused experts; mxfp4 kernels have another, smaller one."""
    moe = next((layer.moe for layer in held.rank.layers if layer.moe), None)
    if moe is None or any(t.component == "experts" and t.format == "mxfp4" for t in held.tensors):
        return None
    width, hidden = moe.intermediate_size, held.rank.model.hidden_size
    terms: dict[str, int | float] = {
        "batched_tokens": batched,
        "active_experts": moe.active,
        "expert_width": width,
        "hidden_size": hidden,
    }
    each = batched * moe.active * 2
    size = each * max(2 * width, hidden) + each * width
    formula = "batched_tokens * active_experts * 2 * (max(2 * expert_width, hidden_size) + expert_width)"
    return Line("overhead/expert_workspace", size, formula, terms, SOURCE, size, size + int(MOE_BAND * GIB))


def _tower(held: Held, batched: int, flags: Flags) -> Line | None:
    """The profile run of a vision tower on the largest image."""
    if not flags.multimodal_profile or not any(line.name in TOWERS for line in held.weights):
        return None
    model = held.rank.model
    step = batched * model.hidden_size * 2
    constant, share = 64_424_509, 0.5  # 0.06 GiB: Mistral Small, Llama 4
    if (model.family or "").startswith(("gemma3", "gemma4")):
        constant, share = 128_849_019, 1.2  # 0.12 GiB
    elif model.family in WIDE_TOWER:
        constant, share = 966_367_642, 0.0  # 0.9 GiB
    terms: dict[str, int | float] = {"constant": constant, "share": share, "step_bytes": step}
    size = ceil(constant + share * step)
    high = size + int(TOWER_BAND * GIB)
    return Line("overhead/vision_profile", size, "ceil(constant + share * step_bytes)", terms, SOURCE, size, high)


def _non_torch(held: Held, options: EngineOptions, rules: Rules) -> Line:
    """Memory outside PyTorch that grows while profiling: NCCL buffers from two GPUs on, libraries."""
    tp, pp = held.rank.tp, held.rank.stages
    size = rules.non_torch_gib[0 if tp == 1 else 1 if tp == 2 else 2]
    if tp == 1 and pp > 1:
        size = 0.07  # the buffers were there before the first snapshot
    if tp > 1 and not _all_reduce_buffers(options):
        size = rules.non_torch_gib[0]  # no NVLink, no buffers for the custom all-reduce (log: 2 x L40S)
    terms: dict[str, int | float] = {"gib": size, "bytes_per_gib": GIB}
    name = (options.gpu.name if options.gpu else "").split(":")[0]
    band = NON_TORCH_BAND + (0 if name.startswith("h100") else OTHER_CARD_BAND)
    found = _banded("overhead/non_torch", ceil(size * GIB), "ceil(gib * bytes_per_gib)", terms, band)
    least = rules.least_non_torch_gib
    if tp == 1 or least is None:
        return found
    return found._replace(low=min(found.low or 0, max(0, int((least - band) * GIB))))


def _all_reduce_buffers(options: EngineOptions) -> bool:
    """Whether the cards are linked so that the custom all-reduce works: unknown counts as yes."""
    link = options.gpu.interconnect if options.gpu else None
    return options.gpu is None or (link is not None and link.kind != "nvlink-bridge")


def _graphs(held: Held, options: EngineOptions, rules: Rules, flags: Flags) -> Line:
    """The estimate of CUDA graphs that is taken off from 0.21 on; noisy, hence the wide band."""
    if options.eager:
        return _gib_line("overhead/cuda_graphs", 0.0, 0.0)
    found = _gib_line("overhead/cuda_graphs", round(_graphs_gib(held, options), 3), GRAPH_BAND)
    without = rules.second_runner and not rules.second_runner_graphs  # its estimate was 0: issue 49224
    return found._replace(low=0) if without or "max_seqs" in flags.unknown else found


def _gib_line(name: str, gib: float, half_gib: float) -> Line:
    terms: dict[str, int | float] = {"gib": gib, "bytes_per_gib": GIB}
    return _banded(name, ceil(gib * GIB), "ceil(gib * bytes_per_gib)", terms, half_gib)


def _graphs_gib(held: Held, options: EngineOptions) -> float:
    if (options.max_seqs or 0) <= 256:
        return 0.5
    layers, hidden = len(held.rank.layers), held.rank.model.hidden_size
    moe = any(layer.moe for layer in held.rank.layers)
    size = 0.32 + 0.013 * layers + 0.024 * layers * hidden / 1e5
    return size + (0.45 if moe else 0) + (0.21 if held.rank.tp > 1 else 0)


def _banded(name: str, size: int, formula: str, terms: dict[str, int | float], half_gib: float) -> Line:
    half = ceil(half_gib * GIB)
    return Line(name, size, formula, terms, SOURCE, max(0, size - half), size + half)

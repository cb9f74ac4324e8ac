"""vLLM's block arithmetic (V1): pages, groups of layers, blocks of one request, tokens of a pool.

Rules: vllm/v1/core/kv_cache_utils.py and vllm/v1/kv_cache_interface.py (v0.22), checked against 217 of vLLM's own
results. A block id means one page in each tensor of the pool, so a *unit* is the bytes of one block id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvplan.arithmetic import Charge, ceil_div, session_units
from kvplan.errors import InputError

STATE_BLOCKS = {"none": 1, "align": 2}  # of one request, beside those for speculation; mode "all" grows with tokens


class LayerSpec(NamedTuple):
    """Layers whose caches are alike, on one GPU."""

    kind: str  # full | window | chunk | state
    layers: int
    page_bytes: int  # of one block of one layer
    block_tokens: int
    reach: int | None = None  # window or chunk, in tokens
    mode: str = ""  # of a state: none | align | all
    speculative_blocks: int = 0


class Group(NamedTuple):
    """`groups` groups of layers of one kind; a request holds blocks of each of them."""

    spec: LayerSpec  # block_tokens after pages were made equal
    groups: int
    in_flight: int  # tokens that one step may add

    @property
    def charge(self) -> Charge | None:
        """Blocks that grow with the tokens of a request; None for a state of fixed size."""
        spec, extra = self.spec, self.spec.speculative_blocks
        if spec.kind == "window" and spec.reach:
            return Charge(self.groups, spec.reach - 1 + self.in_flight, spec.block_tokens, 1)
        if spec.kind == "chunk" and spec.reach:
            return Charge(self.groups, spec.reach + self.in_flight, spec.block_tokens)
        if spec.kind == "state":
            return Charge(self.groups, None, spec.block_tokens, extra) if spec.mode == "all" else None
        return Charge(self.groups, None, spec.block_tokens)

    @property
    def fixed(self) -> int:
        """Blocks that a request holds whatever its length."""
        if self.spec.kind != "state" or self.spec.mode == "all":
            return 0
        return self.groups * (STATE_BLOCKS[self.spec.mode] + self.spec.speculative_blocks)


class Layout(NamedTuple):
    """How the pool of every pipeline stage is cut up."""

    groups: tuple[Group, ...]
    unit_bytes: tuple[int, ...]  # of one block id, on each stage
    padding_layers: int  # places in the tensors that no layer uses

    @property
    def num_groups(self) -> int:
        """Groups of layers, as the logs count them."""
        return sum(group.groups for group in self.groups)

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What grows with the tokens of a request."""
        return tuple(group.charge for group in self.groups if group.charge)

    @property
    def fixed(self) -> int:
        """Blocks of a request whatever its length."""
        return sum(group.fixed for group in self.groups)

    @property
    def min_block_tokens(self) -> int:
        """The smallest block of the groups, in which the logs up to 0.20 count tokens."""
        return min(group.spec.block_tokens for group in self.groups)

    @property
    def block_tokens(self) -> int:
        """Tokens of a block of attention, where the model has any."""
        attention = [group.spec.block_tokens for group in self.groups if group.spec.kind != "state"]
        return min(attention, default=self.min_block_tokens)

    def request_blocks(self, tokens: int) -> int:
        """Block ids that one request of so many tokens is charged."""
        return int(session_units(self.charges, self.fixed, tokens))


def layout(stages: Sequence[Sequence[LayerSpec]], in_flight: int, threshold: float = 1.5) -> Layout:
    """Grouping of the layers of all stages together, then what each stage's pool holds of it.

    `threshold`: one kind may have so many times the layers of another before the groups take the smaller count.
    """
    counts = _merged(stages)
    kinds = list(counts)
    if _uniform(kinds):
        units = tuple(sum(kind.page_bytes * counts[kind][stage] for kind in kinds) for stage in range(len(stages)))
        return Layout((Group(kinds[0]._replace(layers=sum(map(sum, counts.values()))), 1, in_flight),), units, 0)
    page = max(kind.page_bytes for kind in kinds)
    totals = [sum(counts[kind]) for kind in kinds]
    size = group_size(totals, threshold)
    groups = tuple(
        Group(_with_page(kind, page)._replace(layers=total), ceil_div(total, size), in_flight)
        for kind, total in zip(kinds, totals, strict=True)
    )
    units = tuple(
        page * max(_widest(counts[kind], stage, group.groups) for kind, group in zip(kinds, groups, strict=True))
        for stage in range(len(stages))
    )
    return Layout(groups, units, sum(group.groups for group in groups) * size - sum(totals))


def group_size(totals: Sequence[int], threshold: float) -> int:
    """Layers of a group: the fewest of any kind, or the most where that is not many more."""
    fewest, most = min(totals), max(totals)
    return most if most < threshold * fewest else fewest


def _merged(stages: Sequence[Sequence[LayerSpec]]) -> dict[LayerSpec, list[int]]:
    """Layers of each kind on each stage."""
    counts: dict[LayerSpec, list[int]] = {}
    for stage, specs in enumerate(stages):
        for spec in specs:
            found = counts.setdefault(spec._replace(layers=0), [0] * len(stages))
            found[stage] += spec.layers
    return counts


def _uniform(kinds: list[LayerSpec]) -> bool:
    """One group with pages of several sizes: the same kind of attention with the same block everywhere."""
    return len({(k.kind, k.block_tokens, k.reach, k.mode, k.speculative_blocks) for k in kinds}) == 1


def _with_page(kind: LayerSpec, page: int) -> LayerSpec:
    """The kind with the largest page: a state is padded, attention gets larger blocks."""
    if kind.page_bytes == page or kind.kind == "state":
        return kind._replace(page_bytes=page)
    if page % kind.page_bytes:
        raise InputError(
            f"vLLM cannot serve this model: a page of {page} bytes is no multiple of one of {kind.page_bytes}, and it"
            " makes the pages of all kinds of layers equal"
        )
    return kind._replace(page_bytes=page, block_tokens=kind.block_tokens * (page // kind.page_bytes))


def _widest(counts: list[int], stage: int, groups: int) -> int:
    """Layers of the fullest of a kind's groups on this stage: group g has the kind's layers g, g + n, g + 2n, ..."""
    first = sum(counts[:stage])
    here = range(first, first + counts[stage])
    return max(
        (len(range(here.start + (g - here.start) % groups, here.stop, groups)) for g in range(groups)), default=0
    )


class BlockPlan(NamedTuple):
    """What vLLM prints of a pool."""

    num_blocks: int
    num_groups: int
    blocks_per_request: int
    max_concurrency: float
    tokens_to_v020: int
    tokens_from_v021: int


def block_plan(
    specs: Sequence[LayerSpec],
    *,
    available_bytes: int,
    max_model_len: int,
    in_flight: int,
    threshold: float = 1.5,
) -> BlockPlan:
    """Blocks, concurrency and both token lines of one GPU's pool, from the layers it holds."""
    found = layout([specs], in_flight, threshold)
    return printed(found, available_bytes // found.unit_bytes[0], max_model_len)


def printed(found: Layout, num_blocks: int, max_model_len: int) -> BlockPlan:
    """The figures of a pool of so many blocks: get_max_concurrency_for_kv_cache_config and the size line.

    Up to 0.20 the size line divided by the groups; from 0.21 it is the concurrency times the length (#40694, #41069).
    """
    blocks = found.request_blocks(max_model_len)
    concurrency = num_blocks / blocks
    return BlockPlan(
        num_blocks=num_blocks,
        num_groups=found.num_groups,
        blocks_per_request=blocks,
        max_concurrency=concurrency,
        tokens_to_v020=num_blocks // found.num_groups * found.min_block_tokens,
        tokens_from_v021=int(concurrency * max_model_len),
    )

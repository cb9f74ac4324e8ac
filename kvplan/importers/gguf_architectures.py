"""The architectures of llama.cpp as data: which layers slide where the file does not say, and what is not supported.

Source of the patterns: ggml-org/llama.cpp, src/llama-model.cpp, load_hparams, `set_swa_pattern` (layer i slides where
i % period < period - 1, or with `dense_first` where i % period is not 0).
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Architecture(NamedTuple):
    """What the code of llama.cpp knows of an architecture and its files do not say."""

    period: int | None = None  # every such layer sees all tokens; None: no layer slides, whatever the file declares
    window: int | None = None  # where the file has no attention.sliding_window
    chunked: bool = False
    dense_first: bool = False  # the first of a period sees all tokens, not the last
    rope_in_full: bool = True  # else layers that see all tokens have no rotary positions
    pattern_in_file: bool = False  # attention.sliding_window_pattern must say it
    layer_norm: bool = False  # norms without a bias that are not RMS norms


_PLAIN: Final = Architecture()
_IN_FILE: Final = Architecture(pattern_in_file=True)

ARCHITECTURES: dict[str, Architecture] = {
    **dict.fromkeys(
        (
            "llama", "mistral3", "deci", "arcee", "smollm3", "granite", "granitemoe", "granitehybrid", "minicpm",
            "minicpm3", "orion", "xverse", "internlm2", "baichuan", "exaone", "seed_oss", "apertus", "pangu-embedded",
            "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "qwen3next",
            "qwen35", "qwen35moe", "gemma", "phi2", "phi3", "phimoe", "olmo", "olmoe", "openelm", "starcoder",
            "starcoder2", "codeshell", "stablelm", "gpt2", "gptneox", "bloom", "falcon", "falcon-h1", "mamba",
            "mamba2", "jamba", "lfm2", "lfm2moe", "nemotron", "nemotron_h", "nemotron_h_moe", "deepseek", "deepseek2",
            "mistral4", "glm4", "glm4moe", "glm-dsa", "chatglm", "plm", "bailingmoe", "bailingmoe2", "dots1",
            "ernie4_5", "ernie4_5-moe", "hunyuan-dense", "hunyuan-moe", "minimax-m2", "kimi-linear", "maincoder",
        ),
        _PLAIN,
    ),
    **dict.fromkeys(("command-r", "dbrx", "mpt"), Architecture(layer_norm=True)),
    **dict.fromkeys(("gemma4", "cohere2moe", "mimo2", "step35"), _IN_FILE),
    "gemma2": Architecture(2, 4096),
    "gemma3": Architecture(6),
    "gemma3n": Architecture(5),
    "cohere2": Architecture(4, rope_in_full=False, layer_norm=True),
    "llama4": Architecture(4, 8192, chunked=True, rope_in_full=False),
    "gpt-oss": Architecture(2),
    "exaone4": Architecture(4, rope_in_full=False),
    "exaone-moe": Architecture(4, rope_in_full=False),
    "olmo2": Architecture(4),
    "afmoe": Architecture(4, rope_in_full=False),
    "smallthinker": Architecture(4, 4096, dense_first=True, rope_in_full=False),
}  # fmt: skip

_NO_CACHE = "it does not generate text from a cache"
_STATE = "its recurrent layers are not among those that kvplan has"
UNSUPPORTED: dict[str, str] = {
    **dict.fromkeys(("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2"), _NO_CACHE),
    **dict.fromkeys(("jina-bert-v3", "eurobert", "gemma-embedding", "llama-embed", "t5encoder", "wavtokenizer-dec"),
                    _NO_CACHE),
    **dict.fromkeys(("rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7", "plamo2", "plamo3"), _STATE),
    "clip": "it is the vision part of a model; name the file of the language model",
    "mmproj": "it is the vision part of a model; name the file of the language model",
    "t5": "encoder-decoder models are not supported",
    "bitnet": "its norms inside the projections are not among those that kvplan has",
    "grovemoe": "its chunk experts are not among the parts that kvplan has",
    "cogvlm": "its visual experts are not among the parts that kvplan has",
}  # fmt: skip

# llama.h, enum llama_ftype -> scheme. Only schemes that keep vectors in f32, as converters do.
FILE_TYPES: dict[int, str] = {
    0: "fp32", 1: "f16", 2: "q4_0", 3: "q4_1", 7: "q8_0", 8: "q5_0", 9: "q5_1", 10: "q2_k", 11: "q3_k_s",
    12: "q3_k_m", 13: "q3_k_l", 14: "q4_k_s", 15: "q4_k_m", 16: "q5_k_s", 17: "q5_k_m", 18: "q6_k", 25: "iq4_nl",
    30: "iq4_xs", 38: "mxfp4_moe",
}  # fmt: skip

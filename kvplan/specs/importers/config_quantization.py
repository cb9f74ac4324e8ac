from typing import Any, NamedTuple
class Quantized(NamedTuple):
    weights: Any=None
    kv_dtype: Any=None
    notes: tuple=()
def read_quantization(found, model, beside): 
    found.text.value("quantization_config"); return Quantized()

"""Where the language model is in a config, and which family it is of."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvplan.errors import did_you_mean
from kvplan.importers.config_families import FAMILIES, Family
from kvplan.importers.config_fields import Fields
from kvplan.importers.config_known import NAMED_OUTSIDE, SAME_AS, UNSUPPORTED, family_of
from kvplan.importers.config_special import flattened
from kvplan.specs.scalars import shown

_INSIDE = ("text_config", "thinker_config", "language_config", "llm_config", "language_model_config")
_OTHER_HEADS = ("SequenceClassification", "TokenClassification", "RewardModel", "QuestionAnswering", "MaskedLM",
                "ForEmbedding", "Eagle", "ForTextEncoding", "DraftModel")  # fmt: skip
_LEVELS = 3


class Found(NamedTuple):
    """The whole config, its language part, and the family of that."""

    top: Fields
    text: Fields
    name: str
    family: Family

    @property
    def nested(self) -> bool:
        """Whether there is more than the language model."""
        return self.top is not self.text


def find_text(values: dict[str, Any], source: str) -> Found:
    """The language model of a config; what kvplan does not know is refused by name."""
    top = Fields(values, source)
    text, model_type = _inside(top)
    _check_kind(top, text)
    name, family = family_of(model_type)
    if name in UNSUPPORTED or model_type in UNSUPPORTED:
        text.refuse("model_type", f"'{shown(model_type)}' is not supported: {UNSUPPORTED.get(name) or ''}")
    if family is None:
        near = did_you_mean(model_type[:60], [*FAMILIES, *SAME_AS])
        advice = "write a model file in YAML for it (`kvplan schema model`)"
        text.refuse(
            "model_type", f"the architecture '{shown(model_type)}' is not known to kvplan{near or ';'} {advice}"
        )
    full = flattened(name, {**dict(family.defaults), **dict(text.values)})
    known = Fields({key: value if value is not None else _default(family, key) for key, value in full.items()}, source)
    known.where, known.used = text.where, text.used | (full.keys() - text.values.keys())
    return Found(top if text is not top else known, known, name, family)


def _default(family: Family, key: str) -> Any:
    return dict(family.defaults).get(key)


def _inside(top: Fields) -> tuple[Fields, str]:
    """The innermost part that describes a language model, and its `model_type`."""
    text, model_type = top, top.text("model_type")
    outside = model_type if model_type in NAMED_OUTSIDE else None
    for _ in range(_LEVELS):
        inner = next((part for name in _INSIDE if (part := text.section(name)) is not None), None)
        if inner is None:
            break
        text, model_type = inner, outside or inner.text("model_type") or model_type
    if not model_type:
        text.refuse("model_type", "missing; it names the architecture")
    return text, model_type


def _check_kind(top: Fields, text: Fields) -> None:
    """A decoder that writes text: its head is the vocabulary's."""
    for f in (top, text):
        for name in f.texts("architectures") or ():
            other = next((word for word in _OTHER_HEADS if word in name), None)
            if other:
                f.refuse(
                    "architectures", f"'{shown(name)}' is no model that writes text, which is what kvplan plans for"
                )
        if f.flag("is_encoder_decoder") or f.flag("add_cross_attention"):
            f.refuse("is_encoder_decoder", "encoders and cross-attention are not known to kvplan")

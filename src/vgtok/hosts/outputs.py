"""The outputs of transformers that several families share."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from torch import Tensor

from vgtok.hosts.adapters import Pass


def pooled_output(call: Pass, sequence: Tensor, pooled: Tensor | None) -> Any:
    """Return the output of an encoder for its dense (B, L, D) sequence and (B, D) pooled vector."""
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    # The fields are annotated as FloatTensor, which excludes half precision.
    fields: dict[str, Any] = {"last_hidden_state": sequence, "pooler_output": pooled}
    return BaseModelOutputWithPooling(**fields, hidden_states=call.hidden_states())  # type: ignore[arg-type]


def norm_then_first(norm: str) -> Callable[[Any, Pass], Any]:
    """Return a finish that normalizes the sequence and pools its class token."""

    def finish(model: Any, call: Pass) -> Any:
        sequence = call.plan.spread(attrgetter(norm)(model)(call.last))
        return pooled_output(call, sequence, sequence[:, 0])

    return finish


def norm_then_pooler(model: Any, call: Pass) -> Any:
    """Normalize the sequence and give it to the model's own pooler, if it has one."""
    sequence = call.plan.spread(model.layernorm(call.last))
    return pooled_output(call, sequence, model.pooler(sequence) if model.pooler is not None else None)


def stages(model: Any, options: Mapping[str, Any]) -> set[int]:
    """Return the depths of the feature maps of a backbone."""
    return {number for number, name in enumerate(model.stage_names) if name in model.out_features}


def backbone_output(call: Pass, maps: list[Tensor]) -> Any:
    """Return the output of a backbone for its feature maps."""
    from transformers.modeling_outputs import BackboneOutput

    fields: dict[str, Any] = {"feature_maps": tuple(maps), "hidden_states": call.hidden_states()}
    return BackboneOutput(**fields)


def channels_first(call: Pass, sequence: Tensor) -> Tensor:
    """Copy the packed (N, D) sequence to (B, D, rows, columns) maps."""
    return call.plan.maps(sequence).permute(0, 3, 1, 2).contiguous()


def norm_then_maps(norm: str) -> Callable[[Any, Pass], Any]:
    """Return a finish that gives the maps of the stages of a backbone, normalized if its configuration says so."""

    def finish(model: Any, call: Pass) -> Any:
        maps = []
        for depth in sorted(stages(model, call.options)):
            sequence = call.depths[depth]
            if model.config.apply_layernorm:
                sequence = attrgetter(norm)(model)(sequence)
            reshaped = model.config.reshape_hidden_states
            maps.append(channels_first(call, sequence) if reshaped else call.plan.spread(sequence))
        return backbone_output(call, maps)

    return finish

"""Small random models of every family of transformers, with the images and arguments they take."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from tests.encode.small import frame

_ENCODER: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 96,
    "image_size": 128,
}
_DINOV2: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "patch_size": 14}
_RESIZED = {"interpolate_pos_encoding": True}


def randomized(model: nn.Module, seed: int = 3) -> Any:
    """The model in evaluation, with weights that no initial zero or one hides."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def pixels(height: int, width: int, count: int = 2) -> Tensor:
    """(count, 3, height, width) normalized images."""
    return torch.stack([(frame(height, width, seed).float() / 255 - 0.5) / 0.5 for seed in range(count)])


@dataclass(frozen=True)
class Case:
    """A model, two sizes of images it takes and the further arguments of a call."""

    build: Callable[[], nn.Module]
    sizes: tuple[tuple[int, int], ...]
    arguments: dict[str, Any] = field(default_factory=dict)

    def inputs(self, size: tuple[int, int]) -> dict[str, Any]:
        return {"pixel_values": pixels(*size), **self.arguments}


def _vit() -> nn.Module:
    return transformers.ViTModel(transformers.ViTConfig(**_ENCODER))


def _deit() -> nn.Module:
    return transformers.DeiTModel(transformers.DeiTConfig(**_ENCODER))


def _dinov2(kind: str, config: str, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(transformers, kind)(
        getattr(transformers, config)(**{**_DINOV2, "image_size": 112, **settings})
    )


def _dinov3(kind: str, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(transformers, kind)(
        transformers.DINOv3ViTConfig(**_ENCODER, num_register_tokens=4, **settings)
    )


def _clip() -> nn.Module:
    return transformers.CLIPVisionModelWithProjection(
        transformers.CLIPVisionConfig(**_ENCODER, patch_size=16, projection_dim=24)
    )


def _siglip() -> nn.Module:
    return transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**_ENCODER, patch_size=16))


def _mae() -> nn.Module:
    return transformers.ViTMAEModel(transformers.ViTMAEConfig(**_ENCODER, mask_ratio=0.0))


def yolos(**settings: Any) -> nn.Module:
    """YOLOS with positions added between its layers."""
    return transformers.YolosForObjectDetection(
        transformers.YolosConfig(**{**_ENCODER, "image_size": (96, 128)}, num_detection_tokens=7, **settings)
    )


_HEAD: dict[str, Any] = {
    "d_model": 32,
    "decoder_layers": 2,
    "decoder_self_attention_heads": 2,
    "decoder_cross_attention_heads": 2,
    "decoder_ffn_dim": 48,
    "num_queries": 9,
    "group_detr": 2,
    "c2f_num_blocks": 1,
}


def lw_detr(**settings: Any) -> nn.Module:
    """LW-DETR with 2 x 2 windows in two of its four layers."""
    backbone = transformers.LwDetrViTConfig(
        hidden_size=48,
        num_hidden_layers=4,
        num_attention_heads=3,
        image_size=128,
        pretrain_image_size=128,
        window_block_indices=[0, 2],
        num_windows=4,
        out_indices=[2, 4],
    )
    return transformers.LwDetrForObjectDetection(
        transformers.LwDetrConfig(backbone_config=backbone, projector_scale_factors=[1.0], **_HEAD, **settings)
    )


def rf_detr(**settings: Any) -> nn.Module:
    """RF-DETR with 2 x 2 windows in two of its four layers."""
    backbone = transformers.RfDetrDinov2Config(
        **{**_DINOV2, "num_hidden_layers": 4}, image_size=112, num_windows=2, out_indices=[1, 4]
    )
    return transformers.RfDetrForObjectDetection(
        transformers.RfDetrConfig(backbone_config=backbone, **_HEAD, **settings)
    )


_TEXT: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 50,
    "max_position_embeddings": 8,
    "bos_token_id": 0,
    "eos_token_id": 49,
}


def owl(version: str) -> nn.Module:
    """OWL-ViT or OWLv2."""
    tower = {**_ENCODER, "patch_size": 16}
    config = getattr(transformers, f"{version}Config")(text_config=_TEXT, vision_config=tower, projection_dim=32)
    model: nn.Module = getattr(transformers, f"{version}ForObjectDetection")(config)
    return model


_QUERIES = {"input_ids": torch.tensor([[3, 4, 49], [5, 6, 49], [3, 4, 49], [5, 6, 49]])}

CASES: dict[str, Case] = {
    "vit": Case(_vit, ((128, 128),)),
    "vit, other sizes": Case(_vit, ((96, 176), (200, 70)), _RESIZED),
    "deit": Case(_deit, ((128, 128), (96, 160)), _RESIZED),
    "dinov2": Case(_dinov2("Dinov2Model", "Dinov2Config"), ((112, 112), (140, 75))),
    "dinov2, gated": Case(_dinov2("Dinov2Model", "Dinov2Config", use_swiglu_ffn=True), ((140, 70),)),
    "dinov2 backbone": Case(_dinov2("Dinov2Backbone", "Dinov2Config", out_indices=[1, 3]), ((112, 112), (140, 70))),
    "dinov2 backbone, flat": Case(
        _dinov2("Dinov2Backbone", "Dinov2Config", out_indices=[2], reshape_hidden_states=False, apply_layernorm=False),
        ((140, 70),),
    ),
    "registers": Case(_dinov2("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig"), ((112, 112), (70, 140))),
    "registers backbone": Case(
        _dinov2("Dinov2WithRegistersBackbone", "Dinov2WithRegistersConfig", out_indices=[1, 3]), ((112, 112), (70, 140))
    ),
    "dinov3": Case(_dinov3("DINOv3ViTModel"), ((128, 128), (160, 100))),
    "dinov3 backbone": Case(_dinov3("DINOv3ViTBackbone", out_indices=[1, 2]), ((128, 128), (160, 100))),
    "clip": Case(_clip, ((128, 128), (160, 96)), _RESIZED),
    "siglip": Case(_siglip, ((128, 128), (160, 96)), _RESIZED),
    "mae": Case(_mae, ((128, 128),), {"noise": torch.rand(2, 64, generator=torch.Generator().manual_seed(1))}),
    "mae, other sizes": Case(_mae, ((96, 160),), _RESIZED | {"noise": torch.arange(60.0).expand(2, -1)}),
    "yolos": Case(yolos, ((96, 128), (160, 75))),
    "yolos, first positions only": Case(lambda: yolos(use_mid_position_embeddings=False), ((96, 128),)),
    "lw-detr": Case(lw_detr, ((128, 128), (160, 96))),
    "rf-detr": Case(rf_detr, ((112, 112), (168, 168))),
    "owl-vit": Case(lambda: owl("OwlViT"), ((128, 128), (160, 96)), _QUERIES | _RESIZED),
    "owlv2": Case(lambda: owl("Owlv2"), ((128, 128), (160, 96)), _QUERIES | _RESIZED),
}

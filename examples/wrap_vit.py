"""Run a ViT of transformers at 40% of the tokens, and get it back unchanged.

python examples/wrap_vit.py
"""

import torch
from transformers import ViTConfig, ViTModel

import vgtok
from vgtok.data import render_scene

# Random weights, so that nothing is downloaded. Yours: ViTModel.from_pretrained(...)
config = ViTConfig(image_size=256, hidden_size=96, num_hidden_layers=4, num_attention_heads=3, intermediate_size=192)
model = ViTModel(config).eval()
pixels = torch.from_numpy(render_scene(seed=1, width=256, height=256).pixels).permute(2, 0, 1)[None]
images = pixels / 127.5 - 1

with torch.inference_mode():
    dense = model(images).last_hidden_state
    model = vgtok.wrap(model, budget=0.4)
    packed = model(images).last_hidden_state
    [tokens] = model.vgtok.partitions(images)
    again = vgtok.unwrap(model)(images).last_hidden_state
print(f"{len(tokens)} of {tokens.dense} tokens, output {tuple(packed.shape)} as before: {packed.shape == dense.shape}")
print(f"unwrapped, bit for bit: {torch.equal(again, dense)}")

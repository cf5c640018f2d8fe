"""Tokens and pixels to a dense feature map: packed vision transformers of two families, EVA-02 and plain ViT.

Configurations and packing need numpy alone; whatever holds weights needs torch.
"""

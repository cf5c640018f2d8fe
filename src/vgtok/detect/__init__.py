"""Feature map to boxes: a Co-DETR in plain PyTorch, and the detector that joins it to tokenizer and encoder.

Results and soft suppression need numpy alone; whatever holds weights needs torch.
"""

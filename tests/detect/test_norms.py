"""The two norms of maps, place by place and by groups of channels, down to maps of one cell."""

import torch

from vgtok.detect.neck import ChannelNorm, GroupNorm


def test_channel_norm_normalizes_each_place() -> None:
    norm = ChannelNorm(6)
    maps = torch.randn(2, 6, 3, 4) * 5 + 2
    expected = (maps - maps.mean(1, keepdim=True)) / (maps.var(1, unbiased=False, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(norm(maps), expected, atol=1e-5, rtol=1e-5)


def test_group_norm_is_torchs_and_takes_one_cell() -> None:
    norm, torchs = GroupNorm(64), torch.nn.GroupNorm(32, 64)
    maps = torch.randn(2, 64, 3, 4)
    assert torch.equal(norm(maps), torchs(maps))
    assert norm(torch.randn(1, 64, 1, 1)).isfinite().all()

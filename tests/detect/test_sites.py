"""Sites of a sparse head, and what is computed at them, against dense modules on maps that read the sites."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.encode.small import frame, partition
from vgtok.detect.config import Norm
from vgtok.detect.neck import ConvNorm, FeaturePyramid, GroupNorm, UpsampledConv
from vgtok.detect.sites import MaskedSites, SiteRule, Sites, convolve, convolve_enlarged, normalize_groups, sites_of
from vgtok.detect.transformer import EncoderLayer, cell_centers
from vgtok.tokenize.geometry import CELL
from vgtok.tokenize.tokens import Tokens

from .small_models import SMALL, small_model

SIZES = [(192, 256), (205, 330)]
RULES: tuple[SiteRule, ...] = ("roots", "tokens")


def some_tokens(size: tuple[int, int]) -> Tokens:
    tokens = partition(frame(*size), 0.4)
    assert min(tokens.counts().values()) > 0
    return tokens


def some_sites(size: tuple[int, int], rule: SiteRule, stride: int = 8) -> Sites:
    tokens = some_tokens(size)
    shape = (tokens.extent.rows(CELL) * CELL // stride, tokens.extent.columns(CELL) * CELL // stride)
    sites = sites_of(tokens, stride, shape, torch.device("cpu"), rule)
    assert sites is not None
    return sites


@pytest.mark.parametrize("stride", [4, 8])
def test_every_token_has_the_positions_of_a_fine_one(stride: int) -> None:
    tokens = some_tokens(SIZES[0])
    sites = some_sites(SIZES[0], "tokens", stride)
    assert len(sites) == len(tokens) * (CELL // stride) ** 2
    # Every position reads a site of the token it lies in, and a site reads itself.
    owner = torch.full((SIZES[0][0] // stride, SIZES[0][1] // stride), -1)
    for number, (x0, y0, x1, y1) in enumerate(tokens.boxes // stride):
        owner[y0:y1, x0:x1] = number
    owners = owner.flatten()
    assert torch.equal(owners[sites.kept[sites.source]], owners)
    assert torch.equal(sites.source[sites.kept], torch.arange(len(sites)))


@pytest.mark.parametrize("size", SIZES)
def test_only_unsplit_roots_are_left_out(size: tuple[int, int]) -> None:
    tokens, sites = some_tokens(size), some_sites(size, "roots")
    coarse = torch.from_numpy(tokens.cell_sizes() == 64).repeat_interleave(2, 0).repeat_interleave(2, 1).flatten()
    assert torch.equal(sites.kept, (~coarse).nonzero().flatten())
    assert torch.equal(sites.source == len(sites), coarse)


def test_a_dense_partition_needs_no_sites() -> None:
    tokens = partition(frame(192, 256), 1.0)
    for rule in RULES:
        assert sites_of(tokens, 8, (24, 32), torch.device("cpu"), rule) is None
    assert sites_of(some_tokens(SIZES[0]), 16, (12, 16), torch.device("cpu")) is None


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("gradient", [False, True])
def test_convolutions_equal_those_of_the_map(size: tuple[int, int], rule: SiteRule, gradient: bool) -> None:
    sites = some_sites(size, rule)
    torch.manual_seed(0)
    with torch.set_grad_enabled(gradient):
        values, weight, bias = torch.randn(len(sites), 6), torch.randn(5, 6, 3, 3), torch.randn(5)
        expected = functional.conv2d(sites.map(values[None]), weight, bias, padding=1)
        torch.testing.assert_close(convolve(values, weight, bias, sites), at(expected, sites), atol=1e-4, rtol=1e-4)
        layer = UpsampledConv(6, 4, 3, bias=False)
        cells = torch.randn(1, 6, sites.shape[0] // 2, sites.shape[1] // 2)
        found = convolve_enlarged(cells[0].permute(1, 2, 0), layer.kernels(), sites)
        torch.testing.assert_close(found, at(layer(cells), sites), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("size", SIZES)
def test_groups_are_normalized_over_all_positions(size: tuple[int, int]) -> None:
    sites = some_sites(size, "tokens")
    norm = GroupNorm(64)
    values = torch.randn(len(sites), 64) * 3 + 1
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
        expected = norm(sites.map(values[None]))
        torch.testing.assert_close(normalize_groups(values, norm, sites), at(expected, sites), atol=1e-4, rtol=1e-4)
        kinds: tuple[Norm, ...] = ("group", "channel")
        for block in (ConvNorm(64, kind) for kind in kinds):
            convolved = at(block.conv(sites.map(values[None])), sites)
            expected = functional.relu(block.gn(sites.map(convolved[None])))
            torch.testing.assert_close(block.at_sites(values, sites), at(expected, sites), atol=1e-4, rtol=1e-4)


def test_where_every_position_is_a_site_the_neck_is_the_dense_one() -> None:
    shape = (24, 32)
    sites = Sites(shape, torch.arange(24 * 32), torch.arange(24 * 32))
    neck = FeaturePyramid(32, 16, (8, 16))
    features = torch.randn(1, 32, 12, 16)
    found, dense = neck(features, sites), neck(features)
    torch.testing.assert_close(sites.map(found[0]), dense[0], atol=1e-5, rtol=1e-4)
    assert torch.equal(found[1], dense[1])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("gradient", [False, True])
def test_an_encoder_layer_updates_sites_only(rule: SiteRule, gradient: bool) -> None:
    sites = some_sites(SIZES[0], rule, stride=4)
    layer = small_model().query_head.transformer.encoder.layers[0]
    assert isinstance(layer, EncoderLayer)
    shapes = [sites.shape, *((sites.shape[0] // n, sites.shape[1] // n) for n in (2, 4, 8, 16))]
    others = sum(rows * columns for rows, columns in shapes[1:])
    torch.manual_seed(1)
    with torch.set_grad_enabled(gradient):
        cells = torch.randn(1, len(sites) + others, SMALL.dim)
        codes = torch.randn(1, len(sites.source) + others, SMALL.dim)
        centers = torch.cat(cell_centers(shapes, cells))
        skipped = torch.cat([sites.source == len(sites), torch.zeros(others, dtype=torch.bool)])
        # What the dense layer does to a map whose positions read the sites, and none beyond them.
        expected = layer(sites.expanded(cells), codes, centers, shapes, skipped)
        found = layer(cells, sites.chosen(codes, dim=1), sites.chosen(centers), shapes, None, sites)
    torch.testing.assert_close(found, sites.chosen(expected, dim=1), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("gradient", [False, True])
def test_masked_sites_give_what_sites_give(size: tuple[int, int], gradient: bool) -> None:
    sites = some_sites(size, "roots")
    masked = MaskedSites.of((sites.source < len(sites)).view(sites.shape))
    others, kept = 7, sites.kept
    torch.manual_seed(2)
    with torch.set_grad_enabled(gradient):
        # Where masked sites are none, their values must not matter.
        values = torch.randn(1, len(masked) + others, 64)
        chosen = torch.cat([values[:, kept], values[:, len(masked) :]], dim=1)
        torch.testing.assert_close(masked.expanded(values), sites.expanded(chosen))
        torch.testing.assert_close(masked.map(values[:, : len(masked)]), sites.map(chosen[:, : len(sites)]))
        torch.testing.assert_close(masked.counts[kept], sites.counts)
        kinds: tuple[Norm, ...] = ("group", "channel")
        for block in (ConvNorm(64, kind) for kind in kinds):
            found = block.at_sites(values[0, : len(masked)], masked)[kept]
            expected = block.at_sites(chosen[0, : len(sites)], sites)
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        neck = FeaturePyramid(32, 16, (8, 16))
        features = torch.randn(1, 32, sites.shape[0] // 2, sites.shape[1] // 2)
        found, expected = neck(features, masked), neck(features, sites)
        torch.testing.assert_close(found[0][:, kept], expected[0], atol=1e-4, rtol=1e-4)
        assert torch.equal(found[1], expected[1])
    scores = torch.rand(3, len(masked) + others)
    ranked = masked.ranked(scores, -1.0)
    real = torch.cat([sites.source < len(sites), torch.ones(others, dtype=torch.bool)])
    assert torch.equal(ranked >= 0, real.expand(3, -1))
    assert torch.equal(ranked[ranked >= 0], scores[ranked >= 0])
    assert sites.ranked(scores, -1.0) is scores


def at(maps: Tensor, sites: Sites) -> Tensor:
    """The (n, C) values of a (1, C, rows, columns) map at the sites."""
    return maps[0].flatten(1).T[sites.kept]

"""What networks are written of: PyTorch's modules, and what people write by hand, each behind a convolution to eight channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as f
from torch import Tensor, nn


class Behind(nn.Module):
    """A module or a function behind a convolution; a function gets the layers as well."""

    def __init__(self, what: nn.Module | Callable[..., Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.what = what if isinstance(what, nn.Module) else None
        self.call = what
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.what(x) if self.what is not None else self.call(x, *self.layers)


class ChannelsLast(nn.Module):
    """A module over the last axis, to which the channels are moved and back."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def assigned(channels: Any) -> Callable[[Tensor], Tensor]:
    """Assignment to some of the channels."""

    def call(x: Tensor) -> Tensor:
        x = x.clone()
        x[:, channels] = x[:, channels] * 2 + 1
        return x

    return call


def global_context(x: Tensor, key: nn.Module) -> Tensor:
    """Source: Cao et al., "GCNet: Non-local networks meet squeeze-excitation networks and beyond", 2019, figure 4."""
    weights = f.softmax(key(x).flatten(2), 2).unsqueeze(-1)
    return x + torch.matmul(x.flatten(2).unsqueeze(1), weights).view(x.shape[0], 8, 1, 1)


def response_norm(x: Tensor) -> Tensor:
    """Source: Woo et al., "ConvNeXt V2: Co-designing and scaling ConvNets with masked autoencoders", 2023, 3."""
    norm = torch.norm(x, p=2, dim=(2, 3), keepdim=True)
    return x * (norm / (norm.mean(1, keepdim=True) + 1e-6)) + x


def coordinates(x: Tensor, conv: nn.Module) -> Tensor:
    """Source: Hou, Zhou and Feng, "Coordinate attention for efficient mobile network design", 2021, section 3.2."""
    rows, columns = x.mean(3, keepdim=True), x.mean(2, keepdim=True).permute(0, 1, 3, 2)
    rows, columns = torch.split(conv(torch.cat([rows, columns], 2)), [x.shape[2], x.shape[3]], 2)
    return x * torch.sigmoid(rows) * torch.sigmoid(columns).permute(0, 1, 3, 2)


class Coordinates(nn.Module):
    """The same as its authors write it, whose pooling exporters take for windows of a known size."""

    def __init__(self, is_pooled: bool) -> None:
        super().__init__()
        pools = [nn.AdaptiveAvgPool2d((None, 1)), nn.AdaptiveAvgPool2d((1, None))] if is_pooled else []
        self.pools = nn.ModuleList(pools)
        self.conv, self.norm = nn.Conv2d(8, 4, 1), nn.BatchNorm2d(4)
        self.rows, self.columns = nn.Conv2d(4, 8, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        _, _, height, width = x.size()
        rows, columns = [pool(x) for pool in self.pools] or [x.mean(3, keepdim=True), x.mean(2, keepdim=True)]
        both = self.norm(self.conv(torch.cat([rows, columns.permute(0, 1, 3, 2)], dim=2)))
        both = both * (f.relu6(both + 3) / 6)
        rows, columns = torch.split(both, [height, width], dim=2)
        columns = self.columns(columns.permute(0, 1, 3, 2)).sigmoid()
        return x * columns * self.rows(rows).sigmoid()


def strips(x: Tensor, conv: nn.Module) -> Tensor:
    """Source: Hou et al., "Strip pooling: Rethinking spatial pooling for scene parsing", 2020, section 3.1."""
    rows, columns = x.mean(3, keepdim=True).expand_as(x), x.mean(2, keepdim=True).expand_as(x)
    return x * torch.sigmoid(conv(rows + columns))


def strips_resized(x: Tensor, rows: nn.Module, columns: nn.Module, conv: nn.Module) -> Tensor:
    """The same as its authors write it, with three taps along each."""
    size = x.shape[2:]
    h, w = rows(x.mean(3, keepdim=True)), columns(x.mean(2, keepdim=True))
    h, w = (f.interpolate(line, size, mode="bilinear", align_corners=True) for line in (h, w))
    return x * torch.sigmoid(conv(f.relu(h + w)))


def turned(x: Tensor, conv: nn.Module) -> Tensor:
    """Source: Misra et al., "Rotate to attend: Convolutional triplet attention module", 2020, section 3.2."""
    y = x.permute(0, 2, 1, 3)
    y = torch.cat([y.amax(1, keepdim=True), y.mean(1, keepdim=True)], 1)
    return x * torch.sigmoid(conv(y)).permute(0, 2, 1, 3)


def standardised(x: Tensor, conv: nn.Module) -> Tensor:
    """Source: Qiao et al., "Micro-batch training with batch-channel normalization and weight standardization", 2019."""
    weight = conv.weight - conv.weight.mean((1, 2, 3), keepdim=True)
    return f.conv2d(x, weight / (weight.std((1, 2, 3), keepdim=True) + 1e-5), None, 1, 1)


def blurred(x: Tensor) -> Tensor:
    return f.conv2d(f.pad(x, (1, 1, 1, 1), mode="reflect"), torch.ones(8, 1, 3, 3) / 9, stride=2, groups=8)


def mixed(x: Tensor, matrix: nn.Linear) -> Tensor:
    return torch.matmul(matrix.weight, x.flatten(2)).unflatten(2, x.shape[2:])


def gates(x: Tensor, down: nn.Module, up: nn.Module) -> Tensor:
    return x * torch.sigmoid(up(f.relu(down(x.mean((2, 3)))))).view(x.shape[0], 8, 1, 1)


def like(x: Tensor, mode: str) -> Tensor:
    return f.interpolate(f.max_pool2d(x, 2), size=x.shape[2:], mode=mode) + x


def parts(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], 2, 4, x.shape[2], x.shape[3])


ACTIVATIONS = [
    "ELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardtanh",
    "Hardswish",
    "LeakyReLU",
    "LogSigmoid",
    "PReLU",
    "ReLU",
    "ReLU6",
    "SELU",
    "CELU",
    "GELU",
    "Sigmoid",
    "SiLU",
    "Mish",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Softmax2d",
]

IDIOMS: dict[str, tuple[Any, ...]] = {
    **{name: (getattr(nn, name)(),) for name in ACTIVATIONS},
    "prelu_channels": (nn.PReLU(8),),
    "gelu_tanh": (nn.GELU("tanh"),),
    "softplus_beta": (nn.Softplus(2, 5),),
    "glu": (nn.GLU(1),),
    "softmin": (nn.Softmin(1),),
    "log_softmax": (nn.LogSoftmax(1),),
    "hardtanh_narrow": (nn.Hardtanh(-0.2, 0.7),),
    # convolutions and padding
    "conv_same": (nn.Conv2d(8, 6, 4, padding="same"),),
    "conv_reflect": (nn.Conv2d(8, 6, 3, padding=1, padding_mode="reflect"),),
    "conv_replicate": (nn.Conv2d(8, 6, 3, padding=1, padding_mode="replicate"),),
    "conv_circular": (nn.Conv2d(8, 6, 3, padding=1, padding_mode="circular"),),
    "transposed": (nn.ConvTranspose2d(8, 6, 3, 2, 1, 1),),
    "transposed_groups": (nn.ConvTranspose2d(8, 6, 4, 2, 1, groups=2),),
    "transposed_dilated": (nn.ConvTranspose2d(8, 6, 3, 1, 2, dilation=2),),
    "reflection_pad": (nn.ReflectionPad2d((1, 2, 3, 4)),),
    "replication_pad": (nn.ReplicationPad2d((1, 2, 3, 4)),),
    "zero_pad_and_crop": (nn.ZeroPad2d((1, 2, -1, 4)),),
    "constant_pad": (nn.ConstantPad2d(2, 1.5),),
    "circular_pad": (nn.CircularPad2d((1, 2, 3, 0)),),
    "standardised": (standardised, nn.Conv2d(8, 8, 3)),
    "blur": (blurred,),
    # pooling
    "max_pool_ceil": (nn.MaxPool2d(3, 2, 1, ceil_mode=True),),
    "max_pool_dilated": (nn.MaxPool2d(3, 1, 1, dilation=2),),
    "max_unpool": (lambda x: f.max_unpool2d(*f.max_pool2d(x, 2, return_indices=True), 2),),
    "mean_pool_ceil": (nn.AvgPool2d(3, 2, 1, ceil_mode=True),),
    "mean_pool_inside": (nn.AvgPool2d(3, 2, 1, count_include_pad=False),),
    "mean_pool_divisor": (nn.AvgPool2d(2, divisor_override=3),),
    "power_pool": (nn.LPPool2d(2, 3, 2),),
    "adaptive_mean_1": (lambda x: f.adaptive_avg_pool2d(x, 1) * x,),
    "adaptive_mean_4": (nn.AdaptiveAvgPool2d(4),),
    "adaptive_max_1": (lambda x: f.adaptive_max_pool2d(x, 1) * x,),
    "adaptive_max_4": (nn.AdaptiveMaxPool2d(4),),
    # norms
    "batch_norm_plain": (nn.BatchNorm2d(8, affine=False),),
    "batch_norm_of_the_batch": (nn.BatchNorm2d(8, track_running_stats=False),),
    "group_norm": (nn.GroupNorm(2, 8),),
    "group_norm_of_all": (nn.GroupNorm(1, 8),),
    "group_norm_plain": (nn.GroupNorm(4, 8, affine=False),),
    "instance_norm": (nn.InstanceNorm2d(8),),
    "instance_norm_affine": (nn.InstanceNorm2d(8, affine=True),),
    "layer_norm": (ChannelsLast(nn.LayerNorm(8)),),
    "layer_norm_plain": (ChannelsLast(nn.LayerNorm(8, elementwise_affine=False)),),
    "layer_norm_without_bias": (ChannelsLast(nn.LayerNorm(8, bias=False)),),
    "rms_norm": (ChannelsLast(nn.RMSNorm(8, eps=1e-6)),),
    "local_response_norm": (nn.LocalResponseNorm(5),),
    "global_response_norm": (response_norm,),
    "normalize": (lambda x: f.normalize(x, dim=1),),
    "normalize_sum": (lambda x: f.normalize(x, p=1, dim=1),),
    # linear layers and matrices
    "linear": (ChannelsLast(nn.Linear(8, 5)),),
    "perceptron": (ChannelsLast(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))),),
    "matrix_of_channels": (mixed, nn.Linear(8, 5)),
    "tokens": (lambda x: x.flatten(2).transpose(1, 2).transpose(1, 2).unflatten(2, x.shape[2:]),),
    # shuffles and sizes
    "pixel_shuffle": (nn.PixelShuffle(2),),
    "pixel_unshuffle": (nn.PixelUnshuffle(2),),
    "channel_shuffle": (lambda x: parts(x).transpose(1, 2).flatten(1, 2),),
    "nearest": (nn.Upsample(scale_factor=2),),
    "nearest_uneven": (nn.Upsample(scale_factor=(3, 2)),),
    "bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"),),
    "bilinear_aligned": (nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),),
    "bilinear_fraction": (nn.Upsample(scale_factor=1.5, mode="bilinear"),),
    "bilinear_half": (nn.Upsample(scale_factor=0.5, mode="bilinear"),),
    "bilinear_to_a_size": (nn.Upsample(size=(40, 50), mode="bilinear"),),
    "bicubic": (nn.Upsample(scale_factor=2, mode="bicubic"),),
    "like_nearest": (lambda x: like(x, "nearest"),),
    "like_bilinear": (lambda x: like(x, "bilinear"),),
    # over the channels of a pixel, and over the pixels of a channel
    "mean_of_channels": (lambda x: x.mean(1, keepdim=True) * x,),
    "max_of_channels": (lambda x: x.max(1, keepdim=True)[0] * x,),
    "min_of_channels": (lambda x: x.amin(1, keepdim=True) * x,),
    "sum_of_channels": (lambda x: x.sum(1, keepdim=True) * x,),
    "deviation_of_channels": (lambda x: x - x.std(1, keepdim=True),),
    "norm_of_channels": (lambda x: x / (x.norm(dim=1, keepdim=True) + 1e-3),),
    "spatial_attention": (lambda x: torch.cat([x.max(1)[0].unsqueeze(1), x.mean(1).unsqueeze(1)], 1),),
    "argmax": (lambda x: x.argmax(1, keepdim=True),),
    "mean_of_pixels": (lambda x: x.mean((2, 3), keepdim=True) * x,),
    "mean_of_rows_then_columns": (lambda x: x.mean(3, keepdim=True).mean(2, keepdim=True) * x,),
    "mean_of_a_view": (lambda x: x.view(x.shape[0], x.shape[1], -1).mean(2)[:, :, None, None] * x,),
    "max_of_pixels": (lambda x: x.amax((2, 3), keepdim=True) * x,),
    "max_of_flat_pixels": (lambda x: x.flatten(2).max(-1)[0][..., None, None] * x,),
    "variance_of_pixels": (lambda x: x.var(dim=(2, 3), unbiased=False, keepdim=True) + x,),
    "squeeze_and_excitation": (gates, nn.Linear(8, 4), nn.Linear(4, 8)),
    "global_context": (global_context, nn.Conv2d(8, 1, 1)),
    "softmax_of_pixels": (lambda x: f.softmax(x.flatten(2), 2).unflatten(2, x.shape[2:]),),
    # a number for each row or each column
    "mean_of_rows": (lambda x: x * x.mean(3, keepdim=True),),
    "max_of_columns": (lambda x: x - x.amax(2, keepdim=True),),
    "min_of_rows": (lambda x: x.amin(3, keepdim=True),),
    "sum_of_rows": (lambda x: x / (x.abs().sum(3, keepdim=True) + 1),),
    "mean_of_rows_without_axis": (lambda x: x - x.mean(3).unsqueeze(3),),
    "rows_and_columns": (lambda x: x * x.mean(3, keepdim=True) * x.amax(2, keepdim=True),),
    "rows_by_columns": (lambda x: torch.matmul(x.mean(3, keepdim=True), x.mean(2, keepdim=True)),),
    "rows_or_columns": (lambda x: torch.maximum(x.mean(3, keepdim=True), x.amax(2, keepdim=True)),),
    "coordinate_attention": (coordinates, nn.Conv2d(8, 8, 1)),
    "coordinate_attention_normed": (Coordinates(is_pooled=False),),
    "coordinate_attention_pooled": (Coordinates(is_pooled=True),),
    "strip_pooling": (strips, nn.Conv2d(8, 8, 1)),
    "strip_pooling_resized": (
        strips_resized,
        nn.Conv2d(8, 8, (3, 1), padding=(1, 0)),
        nn.Conv2d(8, 8, (1, 3), padding=(0, 1)),
        nn.Conv2d(8, 8, 1),
    ),
    "strip_pooling_pooled": (lambda x: nn.AdaptiveAvgPool2d((None, 1))(x) + nn.AdaptiveAvgPool2d((1, None))(x),),
    "triplet_attention": (turned, nn.Conv2d(2, 1, 7, padding=3)),
    # parts of channels, rows and columns
    "chunk": (lambda x: torch.mul(*x.chunk(2, 1)),),
    "split": (lambda x: torch.cat(torch.split(x, [2, 3, 3], 1)[::-1], 1),),
    "narrow": (lambda x: x.narrow(1, 2, 4),),
    "every_second": (lambda x: torch.max(x[:, ::2], x[:, 1::2]),),
    "list_of_channels": (lambda x: x[:, [2, 0, 1]],),
    "flip_of_channels": (lambda x: x.flip(1),),
    "roll_of_channels": (lambda x: x.roll(2, 1),),
    "assignment": (assigned(slice(0, 4)),),
    "assignment_inside": (assigned(slice(2, 5)),),
    "assignment_to_every_second": (assigned(slice(0, None, 2)),),
    "assignment_to_one": (assigned(3),),
    "stack_sum": (lambda x: torch.stack([x, x * 2], 0).sum(0),),
    "stack_max": (lambda x: torch.stack([x, x * 2], 1).max(1)[0],),
    "stack_in_turn": (lambda x: torch.stack([x, -x], 2).flatten(1, 2),),
    "unbind": (lambda x: sum(torch.unbind(x, 1)).unsqueeze(1),),
    "repeat": (lambda x: x.repeat(1, 2, 1, 1),),
    "tile": (lambda x: torch.tile(x, (1, 2, 1, 1)),),
    "repeat_channels": (lambda x: x.repeat_interleave(2, 1),),
    "repeat_pixels": (lambda x: x.repeat_interleave(2, 2).repeat_interleave(3, 3),),
    "expand": (lambda x: x[:, :1].expand(-1, 8, -1, -1) * x,),
    "softmax_of_parts": (lambda x: parts(x).softmax(1).flatten(1, 2),),
    "softmax_within_parts": (lambda x: parts(x).softmax(2).flatten(1, 2),),
    "maxout": (lambda x: parts(x).max(2)[0],),
    "crop": (lambda x: x[:, :, 2:-2, 3:-1],),
    "focus": (lambda x: torch.cat([x[..., a::2, b::2] for a in (0, 1) for b in (0, 1)], 1),),
    "wrapped": (lambda x: torch.cat([x[..., -2:], x, x[..., :2]], 3),),
    "rows_beside": (lambda x: torch.cat([x, -x], 2),),
    "columns_changed_over": (lambda x: torch.cat([x[..., 4:], x[..., :4]], 3),),
    "roll_of_rows": (lambda x: x.roll(2, 2),),
    "flip_of_columns": (lambda x: (x + x.flip(3)) / 2,),
    "zeros_beside": (lambda x: torch.cat([x, torch.zeros_like(x)], 1),),
    "pad_of_channels": (lambda x: f.pad(x, (0, 0, 0, 0, 2, 2)),),
    # functions of elements
    "rsqrt": (lambda x: torch.rsqrt(x * x + 1),),
    "power": (lambda x: (x * x + 0.1) ** 1.5,),
    "bell": (lambda x: torch.exp(-x * x),),
    "log1p": (lambda x: torch.log1p(x.abs()),),
    "reciprocal": (lambda x: 1 / (x * x + 1),),
    "maximum": (lambda x: torch.maximum(x, x * x),),
    "lerp": (lambda x: torch.lerp(x, x * 2, 0.3),),
    "addcmul": (lambda x: torch.addcmul(x, x, x, value=0.5),),
    "sign": (lambda x: torch.sign(x) * x,),
    "round": (lambda x: torch.round(x * 4) / 4,),
    "sine": (lambda x: torch.sin(x),),
    # masks and choices
    "mask": (lambda x: torch.sigmoid(x) > 0.5,),
    "mask_below": (lambda x: (x <= 0.1).float() * x,),
    "where": (lambda x: torch.where(x > 0, x, x * 0.1),),
    "masked_fill": (lambda x: x.masked_fill(x < 0, 0.5),),
}


def idiom(name: str) -> nn.Module:
    return Behind(*IDIOMS[name])

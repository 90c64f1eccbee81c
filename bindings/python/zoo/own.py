"""Networks of papers that no package of the zoo has, written down after them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Rrdb(nn.Module):
    """ESRGAN's generator: residual blocks in residual blocks of dense blocks, four times as large at the end.

    Source: Wang et al., "ESRGAN: Enhanced super-resolution generative adversarial networks", 2018, section 3.1.
    """

    def __init__(self, features: int = 64, growth: int = 32, blocks: int = 23) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, features, 3, padding=1)
        self.trunk = nn.Sequential(*(ResidualInResidual(features, growth) for _ in range(blocks)))
        self.after = nn.Conv2d(features, features, 3, padding=1)
        self.larger = nn.ModuleList(nn.Conv2d(features, features, 3, padding=1) for _ in range(2))
        self.high = nn.Conv2d(features, features, 3, padding=1)
        self.last = nn.Conv2d(features, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = x + self.after(self.trunk(x))
        for conv in self.larger:
            x = functional.leaky_relu(conv(functional.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
        return self.last(functional.leaky_relu(self.high(x), 0.2))


class ResidualInResidual(nn.Module):
    """Three dense blocks, a fifth of which is added to what they read."""

    def __init__(self, features: int, growth: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(DenseBlock(features, growth) for _ in range(3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x) * 0.2 + x


class DenseBlock(nn.Module):
    """Five convolutions, each of which reads what all before it have made."""

    def __init__(self, features: int, growth: int) -> None:
        super().__init__()
        out = [growth] * 4 + [features]
        self.convs = nn.ModuleList(nn.Conv2d(features + i * growth, out[i], 3, padding=1) for i in range(5))

    def forward(self, x: Tensor) -> Tensor:
        seen = [x]
        for conv in self.convs[:-1]:
            seen.append(functional.leaky_relu(conv(torch.cat(seen, 1)), 0.2))
        return self.convs[-1](torch.cat(seen, 1)) * 0.2 + x


class Edsr(nn.Module):
    """EDSR's baseline: residual blocks without batch norm, then a shuffle of pixels; twice as large.

    Source: Lim et al., "Enhanced deep residual networks for single image super-resolution", 2017, section 3.
    """

    def __init__(self, features: int = 64, blocks: int = 16, scale: int = 2) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4488, 0.4371, 0.4040]).reshape(1, 3, 1, 1))
        self.head = nn.Conv2d(3, features, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(features, features, 3, padding=1), nn.ReLU(), nn.Conv2d(features, features, 3, padding=1)
            )
            for _ in range(blocks)
        )
        self.after = nn.Conv2d(features, features, 3, padding=1)
        self.tail = nn.Sequential(
            nn.Conv2d(features, features * scale**2, 3, padding=1),
            nn.PixelShuffle(scale),
            nn.Conv2d(features, 3, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        first = self.head(x - self.mean)
        x = first
        for block in self.body:
            x = x + block(x)
        return self.tail(self.after(x) + first) + self.mean


class PlainConvUnet(nn.Module):
    """nnU-Net's plain network for two axes: two convolutions a stage, strided ones between, transposed ones on the way up.

    Source: Isensee et al., "nnU-Net: a self-configuring method for deep learning-based biomedical image segmentation",
    2021, supplementary note 1.
    """

    def __init__(self, inputs: int = 1, classes: int = 4, features: tuple[int, ...] = (32, 64, 128, 256, 512)) -> None:
        super().__init__()
        befores = (inputs, *features[:-1])
        self.down = nn.ModuleList(
            nn.Sequential(normed(before, after, 1 if stage == 0 else 2), normed(after, after, 1))
            for stage, (before, after) in enumerate(zip(befores, features, strict=True))
        )
        pairs = list(zip(features[:0:-1], features[-2::-1], strict=True))
        self.transposed = nn.ModuleList(nn.ConvTranspose2d(deep, high, 2, 2) for deep, high in pairs)
        self.up = nn.ModuleList(nn.Sequential(normed(2 * high, high, 1), normed(high, high, 1)) for _, high in pairs)
        self.head = nn.Conv2d(features[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for stage in self.down:
            x = stage(x)
            skips.append(x)
        for transposed, stage, skip in zip(self.transposed, self.up, skips[-2::-1], strict=True):
            x = stage(torch.cat((transposed(x), skip), 1))
        return self.head(x)


def normed(before: int, after: int, stride: int) -> nn.Sequential:
    """A convolution, an instance norm with weights and a leaky ReLU."""
    norm = nn.InstanceNorm2d(after, eps=1e-5, affine=True)
    return nn.Sequential(nn.Conv2d(before, after, 3, stride, 1), norm, nn.LeakyReLU(0.01))


class CycleGan(nn.Module):
    """CycleGAN's generator of nine residual blocks, padded by reflection, with instance norms without weights.

    Source: Zhu et al., "Unpaired image-to-image translation using cycle-consistent adversarial networks", 2017,
    appendix 7.2.
    """

    def __init__(self, features: int = 64, blocks: int = 9) -> None:
        super().__init__()

        def followed(conv: nn.Module, channels: int) -> list[nn.Module]:
            return [conv, nn.InstanceNorm2d(channels), nn.ReLU()]

        layers = [nn.ReflectionPad2d(3), *followed(nn.Conv2d(3, features, 7), features)]
        for channels in (features, 2 * features):
            layers += followed(nn.Conv2d(channels, 2 * channels, 3, 2, 1), 2 * channels)
        layers += [ReflectedBlock(4 * features) for _ in range(blocks)]
        for channels in (4 * features, 2 * features):
            conv = nn.ConvTranspose2d(channels, channels // 2, 3, 2, 1, output_padding=1)
            layers += followed(conv, channels // 2)
        self.layers = nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(features, 3, 7), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class ReflectedBlock(nn.Module):
    """A residual block that pads by reflection."""

    def __init__(self, channels: int) -> None:
        super().__init__()

        def half() -> list[nn.Module]:
            return [nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), nn.InstanceNorm2d(channels)]

        self.layers = nn.Sequential(*half(), nn.ReLU(), *half())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)

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


class NafNet(nn.Module):
    """NAFNet: a U-Net of gated blocks without activations, over an image padded to a multiple and cut back.

    Source: Chen et al., "Simple baselines for image restoration", 2022, section 3.
    """

    def __init__(self, width: int = 16, depth: int = 3) -> None:
        super().__init__()
        widths = [width << level for level in range(depth)]
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(nn.Sequential(GatedBlock(w), nn.Conv2d(w, 2 * w, 2, 2)) for w in widths)
        self.middle = GatedBlock(width << depth)
        self.up = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2 * w, 4 * w, 1, bias=False), nn.PixelShuffle(2)) for w in reversed(widths)
        )
        self.after = nn.ModuleList(GatedBlock(w) for w in reversed(widths))
        self.last = nn.Conv2d(width, 3, 3, padding=1)
        self.multiple = 1 << depth

    def forward(self, image: Tensor) -> Tensor:
        height, width = image.shape[2:]
        missing = [(self.multiple - extent % self.multiple) % self.multiple for extent in (width, height)]
        padded = functional.pad(image, (0, missing[0], 0, missing[1]))
        x, kept = self.first(padded), []
        for block, down in self.down:
            kept.append(block(x))
            x = down(kept[-1])
        x = self.middle(x)
        for up, after in zip(self.up, self.after, strict=True):
            x = after(up(x) + kept.pop())
        return (self.last(x) + padded)[:, :, :height, :width]


class GatedBlock(nn.Module):
    """A product of two halves of the channels in place of an activation, twice, with the mean of the image as attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(ChannelNorm(width) for _ in range(2))
        self.wide = nn.Sequential(
            nn.Conv2d(width, 2 * width, 1), nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width)
        )
        self.attention = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1))
        self.narrow = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(2))
        self.second = nn.Conv2d(width, 2 * width, 1)
        self.scales = nn.ParameterList(torch.rand(1, width, 1, 1) for _ in range(2))

    def forward(self, image: Tensor) -> Tensor:
        a, b = self.wide(self.norms[0](image)).chunk(2, dim=1)
        x = a * b
        image = image + self.narrow[0](x * self.attention(x)) * self.scales[0]
        a, b = self.second(self.norms[1](image)).chunk(2, dim=1)
        return image + self.narrow[1](a * b) * self.scales[1]


class ChannelNorm(nn.Module):
    """The norm of each pixel over its channels, written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(width, 1, 1)), nn.Parameter(torch.rand(width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(1, keepdim=True)
        return centred / (centred.pow(2).mean(1, keepdim=True) + 1e-6).sqrt() * self.weight + self.bias


class Attentive(nn.Module):
    """A small ResNet whose blocks weigh their channels, and their pixels, before the sum."""

    def __init__(self, attention: type[nn.Module]) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.paths, self.shorts = nn.ModuleList(), nn.ModuleList()
        for width, out, stride in ((32, 32, 1), (32, 64, 2), (64, 128, 2)):
            convs = [nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
            convs += [nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out), attention(out)]
            self.paths.append(nn.Sequential(*convs))
            self.shorts.append(nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out)))
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for path, short in zip(self.paths, self.shorts, strict=True):
            x = functional.relu(path(x) + short(x))
        return self.head(x.mean((2, 3)))


class BlockAttention(nn.Module):
    """Of the mean and maximum of each channel, then of those of each pixel.

    Source: Woo et al., "CBAM: Convolutional block attention module", 2018, section 3.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.channels = nn.Sequential(nn.Conv2d(width, width // 8, 1), nn.ReLU(), nn.Conv2d(width // 8, width, 1))
        self.pixels = nn.Conv2d(2, 1, 7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        means, maxima = functional.adaptive_avg_pool2d(x, 1), functional.adaptive_max_pool2d(x, 1)
        x = x * torch.sigmoid(self.channels(means) + self.channels(maxima))
        both = torch.cat([x.mean(1, keepdim=True), x.max(1, keepdim=True).values], 1)
        return x * torch.sigmoid(self.pixels(both))


class EfficientAttention(nn.Module):
    """A convolution along the means of the channels.

    Source: Wang et al., "ECA-Net: Efficient channel attention for deep convolutional neural networks", 2020, section 3.2.
    """

    def __init__(self, _width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        row = functional.adaptive_avg_pool2d(x, 1).squeeze(-1).transpose(-1, -2)
        return x * torch.sigmoid(self.conv(row).transpose(-1, -2).unsqueeze(-1))


class CbamResnet(Attentive):
    """With attention from means and maxima."""

    def __init__(self) -> None:
        super().__init__(BlockAttention)


class EcaResnet(Attentive):
    """With attention from a convolution along the channels."""

    def __init__(self) -> None:
        super().__init__(EfficientAttention)


class ConvNextV2(nn.Module):
    """Two stages of ConvNeXt V2: blocks with their channels last, and the norms of channels over the image.

    Source: Woo et al., "ConvNeXt V2: Co-designing and scaling ConvNets with masked autoencoders", 2023, section 4.
    """

    def __init__(self, width: int = 40) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4, 4), ChannelNorm(width))
        self.first = nn.Sequential(ResponseBlock(width), ResponseBlock(width))
        self.down = nn.Sequential(ChannelNorm(width), nn.Conv2d(width, 2 * width, 2, 2))
        self.second = ResponseBlock(2 * width)
        self.head = nn.Sequential(nn.LayerNorm(2 * width), nn.Linear(2 * width, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.down(self.first(self.stem(x)))).mean((2, 3)))


class ResponseBlock(nn.Module):
    """A block of ConvNeXt V2, with a global response norm between its linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale, self.shift = (nn.Parameter(torch.rand(4 * width)) for _ in range(2))

    def forward(self, image: Tensor) -> Tensor:
        x = functional.gelu(self.wide(self.norm(self.depthwise(image).permute(0, 2, 3, 1))))
        norms = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        x = self.scale * (x * (norms / (norms.mean(-1, keepdim=True) + 1e-6))) + self.shift + x
        return image + self.narrow(x).permute(0, 3, 1, 2)

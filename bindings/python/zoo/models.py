"""The models of the zoo: how each is built, and at which sizes it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Size = tuple[int, int]


@dataclass(frozen=True)
class Entry:
    """A model."""

    name: str
    build: Callable[[], nn.Module]
    channels: int = 3
    # height and width of a run: odd, or an odd multiple of what the model divides by
    size: Size = (97, 131)
    # those of the example that an export with open sizes is made from; None where the model has fixed sizes
    traced: Size | None = (64, 96)
    # whether all opsets are tried
    every_opset: bool = False


class One(nn.Module):
    """The first result of a model that has several by name."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)["out"]


def torchvision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import torchvision

        return torchvision.models.get_model(name, weights=None, **options)

    return build


def segmentation(name: str) -> Callable[[], nn.Module]:
    return lambda: One(torchvision(name, weights_backbone=None, num_classes=21)())


def smp(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import segmentation_models_pytorch

        model = getattr(segmentation_models_pytorch, name)
        return model(encoder_name="resnet34", encoder_weights=None, classes=5)

    return build


def monai(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import monai.networks.nets

        return getattr(monai.networks.nets, name)(spatial_dims=2, in_channels=1, out_channels=3, **options)

    return build


def own(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import own

        return getattr(own, name)()

    return build


# a classifier whose map is pooled to 7×7 or 6×6 has it that large already, since ONNX has no other adaptive pooling
FIXED: dict[str, Any] = {"size": (225, 239), "traced": None}
BY_32: dict[str, Any] = {"size": (96, 160), "traced": (64, 128)}

MODELS: tuple[Entry, ...] = (
    Entry("alexnet", torchvision("alexnet"), **FIXED),
    Entry("vgg11_bn", torchvision("vgg11_bn"), **FIXED),
    Entry("vgg16", torchvision("vgg16"), **FIXED),
    Entry("resnet18", torchvision("resnet18"), every_opset=True),
    Entry("resnet50", torchvision("resnet50")),
    Entry("resnext50_32x4d", torchvision("resnext50_32x4d")),
    Entry("wide_resnet50_2", torchvision("wide_resnet50_2")),
    Entry("densenet121", torchvision("densenet121")),
    Entry("squeezenet1_1", torchvision("squeezenet1_1")),
    Entry("googlenet", torchvision("googlenet", init_weights=False)),
    Entry("inception_v3", torchvision("inception_v3", init_weights=False), size=(107, 139), traced=(96, 128)),
    Entry("mobilenet_v2", torchvision("mobilenet_v2")),
    Entry("mobilenet_v3_small", torchvision("mobilenet_v3_small")),
    Entry("mnasnet0_5", torchvision("mnasnet0_5")),
    Entry("shufflenet_v2_x0_5", torchvision("shufflenet_v2_x0_5")),
    Entry("efficientnet_b0", torchvision("efficientnet_b0")),
    Entry("efficientnet_v2_s", torchvision("efficientnet_v2_s")),
    Entry("regnet_x_400mf", torchvision("regnet_x_400mf")),
    Entry("regnet_y_400mf", torchvision("regnet_y_400mf")),
    Entry("convnext_tiny", torchvision("convnext_tiny"), every_opset=True),
    Entry("fcn_resnet50", segmentation("fcn_resnet50")),
    Entry("deeplabv3_resnet50", segmentation("deeplabv3_resnet50")),
    Entry("lraspp_mobilenet_v3_large", segmentation("lraspp_mobilenet_v3_large")),
    Entry("smp.Unet", smp("Unet"), **BY_32),
    Entry("smp.UnetPlusPlus", smp("UnetPlusPlus"), **BY_32),
    Entry("smp.FPN", smp("FPN"), **BY_32, every_opset=True),
    Entry("smp.Linknet", smp("Linknet"), **BY_32),
    Entry("smp.DeepLabV3Plus", smp("DeepLabV3Plus"), size=(80, 112), traced=(64, 96)),
    Entry("smp.MAnet", smp("MAnet"), **BY_32),
    Entry(
        "monai.UNet",
        monai("UNet", channels=(16, 32, 64, 128), strides=(2, 2, 2), num_res_units=2),
        channels=1,
        size=(72, 104),
    ),
    Entry("monai.BasicUNet", monai("BasicUNet"), channels=1, size=(80, 112)),
    Entry("monai.SegResNet", monai("SegResNet"), channels=1, size=(72, 104)),
    Entry("RRDBNet", own("Rrdb"), size=(33, 45), traced=(24, 32)),
    Entry("EDSR", own("Edsr"), size=(45, 57)),
    Entry("PlainConvUNet", own("PlainConvUnet"), channels=1, size=(80, 112)),
    Entry("CycleGAN", own("CycleGan"), size=(76, 92)),
)


def ready(entry: Entry) -> nn.Module:
    """The model with random weights, in evaluation with the statistics of one batch."""
    torch.manual_seed(1)
    model = entry.build().eval()
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = None
        norm.train()
    if norms:
        with torch.no_grad():
            model(torch.randn(4, entry.channels, *(entry.traced or entry.size)))
    return model.eval()

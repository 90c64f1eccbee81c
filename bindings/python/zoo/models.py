"""The models of the zoo: how each is built, and at which sizes it runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Size = tuple[int, int]


@dataclass(frozen=True)
class Entry:
    """A model."""

    name: str
    build: partial[nn.Module]
    channels: int = 3
    # height and width of a run: odd, or an odd multiple of what the model divides by
    size: Size = (97, 131)
    # those of the example that an export with open sizes is made from; None where the model has fixed sizes
    traced: Size | None = (64, 96)
    # whether all opsets are tried
    every_opset: bool = False

    @property
    def recipe(self) -> str:
        """What its exports depend on."""
        build = (self.build.func.__name__, self.build.args, self.build.keywords)
        return f"{self.name} {build} {self.channels} {self.size} {self.traced}, statistics of runs"


class One(nn.Module):
    """The first result of a model that has several by name."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)["out"]


def torchvision(name: str, **options: Any) -> nn.Module:
    import torchvision

    return torchvision.models.get_model(name, weights=None, **options)


def segmentation(name: str) -> nn.Module:
    return One(torchvision(name, weights_backbone=None, num_classes=21))


def smp(name: str, encoder: str = "resnet34") -> nn.Module:
    import segmentation_models_pytorch

    model = getattr(segmentation_models_pytorch, name)
    return model(encoder_name=encoder, encoder_weights=None, classes=5)


def monai(name: str, **options: Any) -> nn.Module:
    import monai.networks.nets

    return getattr(monai.networks.nets, name)(spatial_dims=2, in_channels=1, out_channels=3, **options)


def own(name: str) -> nn.Module:
    import own

    return getattr(own, name)()


# a classifier whose map is pooled to 7×7 or 6×6 has it that large already, since ONNX has no other adaptive pooling
FIXED: dict[str, Any] = {"size": (225, 239), "traced": None}
BY_32: dict[str, Any] = {"size": (96, 160), "traced": (64, 128)}

MODELS: tuple[Entry, ...] = (
    Entry("alexnet", partial(torchvision, "alexnet"), **FIXED),
    Entry("vgg11_bn", partial(torchvision, "vgg11_bn"), **FIXED),
    Entry("vgg16", partial(torchvision, "vgg16"), **FIXED),
    Entry("resnet18", partial(torchvision, "resnet18"), every_opset=True),
    Entry("resnet50", partial(torchvision, "resnet50")),
    Entry("resnext50_32x4d", partial(torchvision, "resnext50_32x4d")),
    Entry("wide_resnet50_2", partial(torchvision, "wide_resnet50_2")),
    Entry("densenet121", partial(torchvision, "densenet121")),
    Entry("squeezenet1_1", partial(torchvision, "squeezenet1_1")),
    Entry("googlenet", partial(torchvision, "googlenet", init_weights=False)),
    Entry("inception_v3", partial(torchvision, "inception_v3", init_weights=False), size=(107, 139), traced=(96, 128)),
    Entry("mobilenet_v2", partial(torchvision, "mobilenet_v2")),
    Entry("mobilenet_v3_small", partial(torchvision, "mobilenet_v3_small")),
    Entry("mnasnet0_5", partial(torchvision, "mnasnet0_5")),
    Entry("shufflenet_v2_x0_5", partial(torchvision, "shufflenet_v2_x0_5")),
    Entry("efficientnet_b0", partial(torchvision, "efficientnet_b0")),
    Entry("efficientnet_v2_s", partial(torchvision, "efficientnet_v2_s")),
    Entry("regnet_x_400mf", partial(torchvision, "regnet_x_400mf")),
    Entry("regnet_y_400mf", partial(torchvision, "regnet_y_400mf")),
    Entry("convnext_tiny", partial(torchvision, "convnext_tiny"), every_opset=True),
    Entry("fcn_resnet50", partial(segmentation, "fcn_resnet50")),
    Entry("deeplabv3_resnet50", partial(segmentation, "deeplabv3_resnet50")),
    Entry("lraspp_mobilenet_v3_large", partial(segmentation, "lraspp_mobilenet_v3_large")),
    Entry("smp.Unet", partial(smp, "Unet"), **BY_32),
    Entry("smp.UnetPlusPlus", partial(smp, "UnetPlusPlus"), **BY_32),
    Entry("smp.FPN", partial(smp, "FPN"), **BY_32, every_opset=True),
    Entry("smp.Linknet", partial(smp, "Linknet"), **BY_32),
    Entry("smp.DeepLabV3Plus", partial(smp, "DeepLabV3Plus"), size=(80, 112), traced=(64, 96)),
    Entry("smp.MAnet", partial(smp, "MAnet"), **BY_32),
    Entry(
        "monai.UNet",
        partial(monai, "UNet", channels=(16, 32, 64, 128), strides=(2, 2, 2), num_res_units=2),
        channels=1,
        size=(72, 104),
    ),
    Entry("monai.BasicUNet", partial(monai, "BasicUNet"), channels=1, size=(80, 112)),
    Entry("monai.SegResNet", partial(monai, "SegResNet"), channels=1, size=(72, 104)),
    Entry("RRDBNet", partial(own, "Rrdb"), size=(33, 45), traced=(24, 32)),
    Entry("EDSR", partial(own, "Edsr"), size=(45, 57)),
    Entry("PlainConvUNet", partial(own, "PlainConvUnet"), channels=1, size=(80, 112)),
    Entry("CycleGAN", partial(own, "CycleGan"), size=(76, 92)),
    Entry("NAFNet", partial(own, "NafNet"), size=(67, 90)),
    Entry("CBAM", partial(own, "CbamResnet")),
    Entry("ECA-Net", partial(own, "EcaResnet")),
    Entry("ConvNeXtV2", partial(own, "ConvNextV2")),
)


def ready(entry: Entry, extents: tuple[int, int] | None = None) -> nn.Module:
    """The model with random weights, in evaluation with the statistics of one batch.

    Its images have these extents, or those of a run. With the statistics of smaller images, whose deepest maps are mostly
    padding, values grow from block to block, until one rounding of f64 changes the results of EfficientNetV2-S by 3e-8.
    """
    torch.manual_seed(1)
    model = entry.build().eval()
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = None
        norm.train()
    if norms:
        with torch.no_grad():
            model(torch.randn(4, entry.channels, *(extents or entry.size)))
    return model.eval()

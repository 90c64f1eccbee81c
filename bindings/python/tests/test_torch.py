"""Modules of PyTorch: outputs, gradients and running statistics are those of PyTorch in `float64`."""

import copy

import numpy
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tiled.torch  # noqa: E402


class UNet(nn.Module):
    """Two levels, with what U-Nets have."""

    def __init__(self, inputs=3, classes=2):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inputs, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.down = nn.Sequential(
            nn.MaxPool2d(2), nn.Conv2d(6, 12, 3, padding=1, bias=False), nn.GroupNorm(3, 12), nn.SiLU()
        )
        self.up = nn.ConvTranspose2d(12, 6, 2, 2)
        self.last = nn.Sequential(
            nn.Conv2d(12, 8, 3, padding=2, dilation=2),
            nn.BatchNorm2d(8, momentum=0.3),
            nn.ReLU(),
            nn.Conv2d(8, classes, 1),
        )

    def forward(self, x):
        wide = self.first(x)
        return self.last(torch.cat([wide, self.up(self.down(wide))], 1))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 5, 2, 2, groups=1), nn.BatchNorm2d(8), nn.Hardswish(), nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def pair(module, size=32, **options):
    """The module, and a copy of it that runs tiled, in `float64`."""
    torch.manual_seed(1)
    module = module.double()
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)
            nn.init.normal_(norm.running_mean)
    example = torch.randn(1, 3, size, size, dtype=torch.float64)
    return module, tiled.torch.Module(copy.deepcopy(module), example, **options)


def near(got, wanted, bound=1e-11):
    assert got.shape == wanted.shape
    assert (got - wanted).abs().max() <= bound * wanted.abs().max().clamp_min(1e-30)


def same_state(ours, theirs, bound=1e-11):
    for (name, got), wanted in zip(ours.module.state_dict().items(), theirs.state_dict().values(), strict=True):
        assert got.dtype == wanted.dtype and got.shape == wanted.shape, name
        near(got.double(), wanted.double(), bound)


@pytest.mark.parametrize("make", [UNet, Classifier])
def test_two_steps_of_an_optimiser_are_those_of_pytorch(make):
    theirs, ours = pair(make(), memory="64 MiB", threads=2)
    optimisers = [torch.optim.SGD(module.parameters(), 0.1, 0.9) for module in (theirs, ours)]
    for size in ((46, 70), (38, 54)):
        image = torch.randn(2, 3, *size, dtype=torch.float64)
        results = []
        for module, optimiser in zip((theirs, ours), optimisers, strict=True):
            optimiser.zero_grad()
            x = image.clone().requires_grad_()
            y = module(x)
            (y.sin() * y).mean().backward()
            results.append((y.detach(), x.grad, [p.grad.clone() for p in module.parameters()]))
            optimiser.step()
        (y, dx, grads), (our_y, our_dx, our_grads) = results
        near(our_y, y)
        near(our_dx, dx, 1e-9)
        # the bias of a convolution before a batch norm has a gradient that is zero but for roundings
        scale = max(grad.abs().max() for grad in grads)
        for got, wanted in zip(our_grads, grads, strict=True):
            assert got.shape == wanted.shape and (got - wanted).abs().max() <= 1e-10 * scale
    for (name, got), wanted in zip(ours.module.named_buffers(), theirs.buffers(), strict=True):
        near(got.double(), wanted.double(), 1e-9), name


def test_in_evaluation_norms_have_their_running_statistics():
    theirs, ours = pair(UNet())
    image = torch.randn(1, 3, 26, 34, dtype=torch.float64)
    for module in (theirs, ours):
        module.eval()
    with torch.no_grad():
        # as planned: nothing is kept for gradients
        wanted, plans = ours.peak_bytes(image), len(ours._plans)
        near(ours(image), theirs(image))
        assert len(ours._plans) == plans
    assert ours.peak_bytes(image) > wanted
    # gradients in evaluation, and changed weights
    for module in (theirs, ours):
        module.zero_grad()
        with torch.no_grad():
            next(module.parameters()).mul_(2)
        module(image).square().sum().backward()
    for got, wanted in zip(ours.parameters(), theirs.parameters(), strict=True):
        near(got.grad, wanted.grad, 1e-9)
    same_state(ours, theirs)


def test_frozen_parts_have_no_gradient_and_frozen_norms_stay():
    theirs, ours = pair(UNet())
    image = torch.randn(1, 3, 22, 30, dtype=torch.float64)
    for module, part in ((theirs, theirs), (ours, ours.module)):
        part.first.requires_grad_(False)
        part.first.eval()
        module(image).square().mean().backward()
        assert all(parameter.grad is None for parameter in part.first.parameters())
    for got, wanted in zip(ours.module.last.parameters(), theirs.last.parameters(), strict=True):
        assert (got.grad - wanted.grad).abs().max() <= 1e-10 * theirs.last[3].weight.grad.abs().max()
    same_state(ours, theirs, 1e-10)


def test_a_budget_is_kept_and_changes_no_output():
    module, ours = pair(UNet(), memory="1 GiB")
    image = torch.randn(1, 3, 300, 200, dtype=torch.float64)
    wanted, whole = ours(image), ours.peak_bytes(image)

    def within(memory):
        return tiled.torch.Module(module, image[..., :32, :32], memory=memory)

    small = within(whole // 4)
    assert small.peak_bytes(image) <= whole // 4
    assert torch.equal(small(image), wanted)
    with pytest.raises(tiled.BudgetError, match="too small"):
        within(1000)(image)


def test_single_precision_is_near_and_mixed_is_refused():
    torch.manual_seed(2)
    theirs = UNet()
    ours = tiled.torch.Module(copy.deepcopy(theirs), torch.zeros(1, 3, 32, 32))
    image = torch.randn(2, 3, 40, 44)
    near(ours(image), theirs(image), 1e-4)
    with pytest.raises(tiled.Error, match="float32, torch.float64, wants all"):
        ours(image.double())


def test_what_an_export_leaves_out_is_refused():
    image = torch.randn(1, 3, 32, 32)
    dropout = tiled.torch.Module(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout2d(0.5), nn.Conv2d(4, 2, 1)), image)
    with pytest.raises(tiled.Error, match="draws random numbers"):
        dropout(image)
    with torch.no_grad():
        assert dropout.eval()(image).shape == (1, 2, 30, 30)

    class Computed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))

        def forward(self, x):
            return nn.functional.conv2d(x, self.weight * 2)

    with pytest.raises(tiled.NetworkError, match="as it does scalars: weight"):
        tiled.torch.Module(Computed(), image)
    with pytest.raises(tiled.NetworkError):
        tiled.torch.Module(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(2), nn.Softmax(1)), image)
    norm = tiled.torch.Module(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=None)), image)
    with pytest.raises(tiled.Error, match="batch norm `1` is in training without a momentum"):
        norm(image)
    with pytest.raises(tiled.Error, match="cannot be copied"):
        copy.deepcopy(norm)


def test_inputs_may_change_after_they_are_saved_no_more_than_with_pytorch():
    _, ours = pair(UNet())
    image = torch.randn(1, 3, 20, 20, dtype=torch.float64)
    y = ours(image)
    image.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_sizes_take_turns_and_gradients_may_wait():
    theirs, ours = pair(UNet())
    images = [torch.randn(1, 3, *size, dtype=torch.float64) for size in ((20, 24), (32, 28), (20, 24))]
    for module in (theirs, ours):
        module.zero_grad()
        losses = [module(image).square().mean() for image in images[:2]]
        losses.append(module(images[2]).square().sum() * 1e-4)
        for loss in losses:
            loss.backward()
    scale = max(parameter.grad.abs().max() for parameter in theirs.parameters())
    for got, wanted in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (got.grad - wanted.grad).abs().max() <= 1e-10 * scale
    same_state(ours, theirs, 1e-9)


def test_what_a_module_changes_in_training_alone_is_refused():
    class Own(nn.Module):
        """A norm that is no batch norm of PyTorch's."""

        def __init__(self):
            super().__init__()
            self.register_buffer("running_mean", torch.zeros(3))
            self.register_buffer("running_var", torch.ones(3))

        def forward(self, x):
            return nn.functional.batch_norm(x, self.running_mean, self.running_var, training=self.training)

    image = torch.randn(2, 3, 16, 16)
    ours = tiled.torch.Module(nn.Sequential(Own(), nn.Conv2d(3, 2, 1)), image)
    with pytest.raises(tiled.Error, match="changes buffers, which its export does not show: 0.running_mean"):
        ours(image)
    ours.module[0].eval()
    theirs = ours.module(image)
    near(ours(image), theirs, 1e-5)


def test_weights_are_seen_however_they_change():
    torch.manual_seed(3)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 1, 3))
    ours = tiled.torch.Module(module, torch.randn(1, 3, 16, 16))
    image = torch.randn(1, 3, 20, 20)

    def same():
        near(ours(image), module(image), 1e-4)

    optimiser = torch.optim.AdamW(ours.parameters(), 0.05, fused=True)
    for _ in range(3):
        optimiser.zero_grad()
        ours(image).square().mean().backward()
        optimiser.step()
        same()
    module[0].weight.data.mul_(2)
    same()
    module[0].weight.detach().numpy()[...] *= -1
    same()
    module[2].weight = nn.Parameter(module[2].weight.detach() * 3)
    same()
    module.load_state_dict({name: tensor * 0.5 for name, tensor in module.state_dict().items()}, assign=True)
    same()
    module[0].bias = None
    with pytest.raises(tiled.Error, match="no 0.bias any more"):
        ours(image)


class Scaled(nn.Module):
    """Buffers and a frozen parameter that the export computes with."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.register_buffer("mean", torch.rand(1, 3, 1, 1))
        self.register_buffer("scale", torch.tensor(3.0))
        self.gate = nn.Parameter(torch.rand(4, 1, 1), requires_grad=False)

    def forward(self, x):
        return self.conv(x / self.mean - self.mean * self.mean) * self.scale * self.gate.exp()


def test_what_an_export_computes_with_has_its_own_values_and_may_not_change():
    torch.manual_seed(4)
    module = Scaled()
    ours = tiled.torch.Module(module, torch.randn(1, 3, 16, 16))
    image = torch.randn(1, 3, 20, 24)
    near(ours(image), module(image), 1e-4)
    module.gate.data.add_(1)
    with pytest.raises(tiled.Error, match="gate has changed"):
        ours(image)


class Made(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.conv, self.make = nn.Conv2d(3, 4, 3, padding=1), make

    def forward(self, x):
        return self.make(self.conv(x), self.training)


@pytest.mark.parametrize(
    "make",
    [
        lambda y, _: y.mean(1),
        lambda y, _: y[:, :1].squeeze(1),
        lambda y, _: y.permute(0, 2, 3, 1),
        lambda y, _: y.amax((2, 3)),
        lambda y, _: {"out": y, "aux": y.mean(1, keepdim=True)},
        lambda y, _: (y,),
        lambda y, _: [y.relu(), y.mean(1)],
    ],
)
def test_outputs_are_those_of_the_module_in_kind_and_shape(make):
    theirs, ours = pair(Made(make))
    image = torch.randn(2, 3, 20, 26, dtype=torch.float64)
    flat = []
    for module in (theirs, ours):
        made = module(image)
        outputs = list(made.values()) if isinstance(made, dict) else [made] if torch.is_tensor(made) else made
        torch.stack([(output * output.sin()).sum() for output in outputs]).sum().backward()
        flat.append((made, outputs))
    (wanted, of_theirs), (got, of_ours) = flat
    assert (list(got) == list(wanted)) if isinstance(wanted, dict) else torch.is_tensor(got) == torch.is_tensor(wanted)
    for output, other in zip(of_ours, of_theirs, strict=True):
        near(output, other)
    for parameter, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        near(parameter.grad, other.grad, 1e-9)


def test_results_that_are_others_are_refused():
    image = torch.randn(1, 3, 16, 16)
    # a size that the export holds for that of the example, a module that trains otherwise
    with pytest.raises(tiled.NetworkError, match="does not compute what the module does"):
        tiled.torch.Module(Made(lambda y, _: y * int(y.shape[2])), image)
    ours = tiled.torch.Module(Made(lambda y, trains: y.relu() if trains else y), image)
    with pytest.raises(tiled.Error, match="in training: output .* differs by"):
        ours(image)
    assert ours.eval()(image).shape == (1, 4, 16, 16)
    with pytest.raises(tiled.NetworkError, match="PyTorch does not export the module"):
        tiled.torch.Module(Made(lambda y, _: nn.functional.adaptive_avg_pool2d(y, (3, y.shape[2]))), image)


def test_settings_of_a_norm_and_graphs_that_are_used_up():
    module = nn.BatchNorm2d(3)
    ours = tiled.torch.Module(module, torch.randn(1, 3, 8, 8))
    image = torch.randn(2, 3, 8, 8)
    y = ours(image)
    y.square().sum().backward(retain_graph=True)
    with pytest.raises(tiled.Error, match="computed already: `retain_graph`"):
        y.sum().backward()
    module.momentum = 0.7
    with pytest.raises(tiled.Error, match="eps or momentum of a batch norm has changed"):
        ours(image)


def test_tensors_of_pytorch_are_arrays():
    network = tiled.Network("light", "random:1")
    image = torch.randn(1, 3, 40, 50)
    got = network.run(image.requires_grad_())
    assert isinstance(got, numpy.ndarray) and (got == network.run(image.detach().numpy())).all()

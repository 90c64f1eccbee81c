"""Runs over arrays in memory: what they compute, in which axes and types, and what they refuse."""

import numpy
import pytest

import tiled


def near(got, wanted, bound=1e-5):
    assert got.shape == wanted.shape
    assert numpy.abs(got - wanted).max() <= bound * numpy.abs(wanted).max()


def test_a_run_is_what_the_network_computes(network, image, expected):
    near(network.run(image), expected(image))
    near(network(image, dtype="float64"), expected(image), 1e-13)
    assert network.run(image).dtype == numpy.float32
    assert network.run(image, dtype=numpy.float64).dtype == numpy.float64


def test_no_bit_depends_on_the_budget_or_the_threads(network, image):
    whole = network.run(image, memory="1 GiB", threads=2)
    least = network.plan(image, memory="1 GiB").peak_bytes
    with pytest.raises(tiled.BudgetError, match="is too small, the smallest that works is \\d+ bytes"):
        network.run(image, memory=1000)
    with pytest.raises(tiled.BudgetError) as refused:
        network.plan(image.shape, memory=1000)
    smallest = int(str(refused.value).split("smallest that works is ")[1].split()[0])
    assert smallest < least
    plan = network.plan(image.shape, memory=smallest, threads=1)
    assert plan.peak_bytes <= smallest and plan.output_shapes == [whole.shape]
    for _ in range(2):
        assert (plan.run(image) == whole).all()
    assert str(plan.peak_bytes) not in ("", "0") and "pool" in str(plan)


def test_arrays_are_taken_as_they_lie(network, image, expected):
    wanted = expected(image)
    views = [
        numpy.asfortranarray(image),
        image[:, ::-1, ::-1][:, ::-1, ::-1],
        numpy.repeat(image, 2, axis=3)[..., ::2],
        image.astype(numpy.float64),
        image.tolist(),
    ]
    for view in views:
        near(network.run(view), wanted)
    halves = image.astype(numpy.float16)
    near(network.run(halves), expected(halves))
    backward = image[:, :, ::-1, ::-1]
    near(network.run(backward), expected(backward))
    same = numpy.broadcast_to(image[:1, :1], (2, 3, 61, 83))
    near(network.run(same), expected(same))


def test_axes_of_the_input_are_those_of_the_result(network, image, expected):
    wanted = expected(image)
    near(network.run(image[0]), wanted[0])
    last = numpy.ascontiguousarray(numpy.moveaxis(image, 1, -1))
    got = network.run(last, axes="NHWC")
    assert got.flags.c_contiguous
    near(numpy.moveaxis(got, -1, 1), wanted)
    near(numpy.moveaxis(network.run(last[1], axes="HWC"), -1, 0), wanted[1])
    near(network.plan(last[1], axes="HWC").run(last[1], axes="HWC"), numpy.moveaxis(wanted[1], 0, -1))
    with pytest.raises(tiled.Error, match="input x: axes 'HWX' are not the 3 axes of it"):
        network.run(last[0], axes="HWX")
    with pytest.raises(tiled.Error, match="input x: wants 2 to 4 axes"):
        network.run(image[None])


def test_integers_are_scaled_as_pictures_are_or_taken_as_they_are(network, image, expected):
    bytes_ = (image * 40 + 128).clip(0, 255).astype(numpy.uint8)
    near(network.run(bytes_), expected(bytes_ / 255))
    near(network.run(bytes_, numbers="as-is"), expected(bytes_))
    shorts = bytes_.astype(numpy.int16) - 100
    near(network.run(shorts), expected(shorts))
    mean, std = [0.5, 0.25, 0.125], [0.25, 0.5, 2.0]
    wanted = (bytes_ / 255 - numpy.reshape(mean, (3, 1, 1))) / numpy.reshape(std, (3, 1, 1))
    near(network.run(bytes_, mean=mean, std=std), expected(wanted))
    near(network.run(image, scale=3, mean=1), expected(image * 3.0 - 1))
    with pytest.raises(tiled.Error, match="mean"):
        network.run(image, mean=[1, 2])
    with pytest.raises(tiled.Error, match='"scaled" or "as-is", not "raw"'):
        network.run(image, numbers="raw")


def test_results_go_where_out_says_and_become_what_is_asked_for(network, image, expected):
    wanted = expected(image)
    out = numpy.full(wanted.shape, numpy.nan)
    assert network.run(image, out=out) is out
    near(out, wanted)
    turned = numpy.empty(wanted.shape[::-1], numpy.float32).transpose()
    network.run(image, out=[turned])
    near(turned, wanted)
    classes = network.run(image, argmax=True)
    assert classes.dtype == numpy.uint8 and classes.shape == (2, 1, *wanted.shape[2:])
    assert (classes[:, 0] == wanted.argmax(1)).all()
    above = network.run(image, threshold=2.0, output_dtype="uint8", output_numbers="as-is")
    assert (above == (wanted > 2)).all()
    rounded = network.run(image, output_dtype="int32", output_numbers="as-is")
    assert (rounded == numpy.rint(wanted)).all()


def test_what_a_type_cannot_hold_is_told(network, image, expected):
    with pytest.warns(UserWarning, match="output pool: of \\d+ values from .* were cut"):
        got = network.run(image, output_dtype="uint8")
    assert got.max() == 255 and expected(image).max() > 1


def test_outputs_that_do_not_fit_are_refused_before_anything_is_written(network, image, expected):
    wanted = expected(image)
    small = numpy.zeros((2, 5, 4, 4), numpy.float32)
    with pytest.raises(tiled.Error, match="pool: has the shape \\[2, 5, 4, 4\\], the run writes"):
        network.run(image, out=small)
    assert not small.any()
    locked = numpy.zeros(wanted.shape, numpy.float32)
    locked.flags.writeable = False
    with pytest.raises(tiled.Error, match="pool: cannot be written"):
        network.run(image, out=locked)
    memory = numpy.zeros(image.size + 10, numpy.float32)
    shared = memory[: image.size].reshape(image.shape)
    overlapping = memory[-wanted.size :].reshape(wanted.shape)
    with pytest.raises(tiled.Error, match="pool and x lie in one stretch of memory"):
        network.run(shared, out=overlapping)
    # what would become of a list nobody would see
    with pytest.raises(
        tiled.Error, match="pool: wants a path, an array, or an object with shape, dtype and slices to write, is list"
    ):
        network.run(image, out=[wanted.tolist()])
    with pytest.raises(tiled.Error, match="out has 2 outputs, the network 1: `pool`"):
        network.run(image, out=[small, small])


def test_inputs_that_do_not_fit_are_refused_by_name(network, image):
    with pytest.raises(tiled.Error, match="2 inputs are given, the network has 1: `x`"):
        network.run(image, image)
    with pytest.raises(tiled.NetworkError, match="conv.*3.*4|4.*3"):
        network.run(numpy.zeros((1, 4, 20, 20), numpy.float32))
    with pytest.raises(tiled.Error, match="input x|x: wants integers or floating-point numbers of this machine"):
        network.run(image.astype(">f4"))
    with pytest.raises(tiled.Error, match="x: wants integers or floating-point numbers"):
        network.run(image.astype(complex))
    with pytest.raises(tiled.Error, match="x: wants elements"):
        network.run(numpy.zeros((1, 3, 0, 8), numpy.float32))
    with pytest.raises(tiled.Error, match="input x: wants a path, an array, or an object"):
        network.run(object())
    with pytest.raises(ValueError, match="memory of 0 bytes"):
        network.run(image, memory=0)
    with pytest.raises(TypeError, match="memory 1000000000.0: wants a whole number"):
        network.run(image, memory=1e9)
    with pytest.raises(TypeError, match="threads 1.5: wants a whole number"):
        network.run(image, threads=1.5)
    with pytest.raises(tiled.Error, match="made without argmax"):
        network.plan(image).run(image, argmax=True)
    with pytest.raises(ValueError, match="unit `parsec`"):
        network.run(image, memory="1 parsec")
    with pytest.raises(tiled.Error, match="unknown device `gpu`"):
        network.run(image, device="gpu")
    with pytest.raises(tiled.Error, match="dtype u8 is neither float32 nor float64"):
        network.run(image, dtype="uint8")


def test_a_simulated_gpu_computes_the_same(network, image, expected):
    try:
        got = network.run(image, device="cuda-sim", memory="64 MiB")
    except tiled.Error as error:
        pytest.skip(f"no simulated device: {error}")
    near(got, expected(image))

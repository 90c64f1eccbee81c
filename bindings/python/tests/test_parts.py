"""Files, and objects that are read and written in parts."""

import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import numpy
import pytest

import tiled


class Sliced:
    """An array that counts what is asked of it, and has no other way in."""

    def __init__(self, array, chunks=None):
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype
        if chunks is not None:
            self.chunks = chunks
        self.reads, self.writes = [], []
        self.busy = threading.Lock()

    def __getitem__(self, key):
        assert self.busy.acquire(blocking=False), "asked for twice at once"
        try:
            assert all(isinstance(part, slice) for part in key) and len(key) == len(self.shape)
            part = self._array[key].copy()
            self.reads.append((key, part.nbytes))
            return part
        finally:
            self.busy.release()

    def __setitem__(self, key, part):
        assert self.busy.acquire(blocking=False), "written twice at once"
        try:
            assert self._array[key].shape == part.shape
            self.writes.append((key, part.nbytes))
            self._array[key] = part
        finally:
            self.busy.release()


def test_an_object_with_slices_is_read_and_written_in_parts(network, image):
    wanted = network.run(image)
    source, sink = Sliced(image), Sliced(numpy.zeros_like(wanted))
    assert network.run(source, out=sink, threads=2) is sink
    assert (sink._array == wanted).all()
    # channels last, one image, elements of another type
    pixels = (numpy.moveaxis(image[0], 0, -1) * 40 + 128).clip(0, 255).astype(numpy.uint8)
    wanted = network.run(pixels, axes="HWC", argmax=True)
    sink = Sliced(numpy.full(wanted.shape, 99, numpy.uint8))
    network.run(Sliced(pixels), axes="HWC", argmax=True, out=sink)
    assert (sink._array == wanted).all()


def test_parts_are_small_whatever_the_image(network):
    image = numpy.random.default_rng(3).random((3, 40, 60000), numpy.float32)
    source = Sliced(image)
    got = network.run(source, memory="64 MiB")
    assert (got == network.run(image)).all()
    assert len(source.reads) > 20 and max(size for _, size in source.reads) <= 1 << 20
    # a plan that was made without them may leave less
    with pytest.raises(tiled.BudgetError) as refused:
        network.plan(image.shape, memory=1, threads=1)
    least = int(re.search("smallest that works is (\\d+) bytes", str(refused.value))[1])
    source, sink = Sliced(image), Sliced(numpy.zeros_like(got))
    network.plan(image.shape, memory=least, threads=1).run(source, out=sink)
    assert (sink._array == got).all()
    assert max(size for _, size in source.reads + sink.writes) <= 1 << 16


def test_pictures_are_in_the_memory_of_the_run(tmp_path):
    net = {
        "inputs": [{"name": "x", "channels": 1}],
        "nodes": [{"name": "y", "op": "relu", "inputs": ["x"]}],
        "outputs": ["y"],
    }
    (tmp_path / "net.json").write_text(json.dumps(net))
    network = tiled.Network(tmp_path / "net.json", {})
    image = numpy.random.default_rng(7).integers(0, 256, (1, 1000, 2000), numpy.uint8)
    path = tmp_path / "x.png"

    def smallest(make, *given, **options):
        with pytest.raises(tiled.BudgetError) as refused:
            make(*given, threads=1, **options)
        return int(re.search("smallest that works is (\\d+) bytes", str(refused.value))[1])

    network.run(image, out=path, memory=8 << 20, threads=1)
    assert (network.run(path, output_dtype="uint8", memory=8 << 20, threads=1) == image).all()
    # what is written is held beside the plan, where it takes a quarter of the memory at most
    small = image[:, :50, :100]
    options = {"memory": 4 * small.nbytes}
    npy, png = (smallest(network.run, small, out=tmp_path / f"y.{kind}", **options) for kind in ("npy", "png"))
    assert png - npy == small.nbytes
    # one that was planned for its size alone is read from a temporary file where it does not fit
    least = smallest(network.plan, image.shape, memory=1)
    plan = network.plan(image.shape, memory=least, threads=1)
    assert (plan.run(path, output_dtype="uint8") == image).all()
    with pytest.raises(tiled.Error, match="nowhere"):
        network.run(path, memory=least, threads=1, temporary_folder=tmp_path / "nowhere")
    # one that can only be decoded in memory may take more than a quarter of it
    net["inputs"][0]["channels"] = 3
    (tmp_path / "net.json").write_text(json.dumps(net))
    photo = Path(__file__).parents[3] / "crates/exec/tests/data/flat_2000x1500_progressive.jpg"
    assert tiled.Network(tmp_path / "net.json", {}).run(photo, memory="32 MiB").shape == (1, 3, 1500, 2000)


def test_each_chunk_is_read_once(network):
    image = numpy.random.default_rng(4).integers(0, 256, (3, 200, 300), numpy.uint8)
    source = Sliced(image, (3, 64, 64))
    got = network.run(source, memory="16 MiB")
    assert (got == network.run(image)).all()
    keys = [tuple((part.start, part.stop) for part in key[1:]) for key, _ in source.reads]
    assert len(keys) == len(set(keys)) == 4 * 5
    assert all(rows[0] % 64 == 0 and cols[0] % 64 == 0 for rows, cols in keys)
    plan = network.plan(Sliced(image, (3, 64, 64)), memory="16 MiB")
    assert (plan.run(Sliced(image, (3, 64, 64))) == got).all()


def test_a_chunk_that_the_budget_does_not_hold_is_read_in_parts(network):
    image = numpy.random.default_rng(5).random((3, 1500, 1500), numpy.float32)
    source = Sliced(image, (3, 1500, 1500))
    got = network.run(source, memory="12 MiB")
    assert (got == network.run(image)).all()
    assert max(size for _, size in source.reads) <= 1 << 20
    # so does a plan, also one that was made for a shape alone
    for given in (Sliced(image, (3, 1500, 1500)), image.shape):
        plan = network.plan(given, memory="12 MiB")
        for chunks in ((3, 1500, 1500), (3, 100, 100), None):
            assert (plan.run(Sliced(image, chunks)) == got).all()
    # a chunk counts as far as it lies in the image
    small = numpy.ascontiguousarray(image[:, :40, :50])
    assert (network.run(Sliced(small, (3, 2000, 2000)), memory="4 MiB") == network.run(small)).all()


def test_outputs_have_places_and_axes_of_their_own(tmp_path):
    net = {
        "inputs": [{"name": "x", "channels": 3}],
        "nodes": [{"name": name, "op": name, "inputs": ["x"]} for name in ("relu", "abs")],
        "outputs": ["relu", "abs"],
    }
    (tmp_path / "two.json").write_text(json.dumps(net))
    network = tiled.Network(tmp_path / "two.json", {})
    image = numpy.random.default_rng(6).standard_normal((3, 7, 9)).astype(numpy.float32)
    relu, absolute = network.run(image)
    assert (relu == numpy.maximum(image, 0)).all() and (absolute == abs(image)).all()
    with pytest.raises(tiled.Error, match="output relu: another output goes to the same place"):
        network.run(image, out=[tmp_path / "y.npy", str(tmp_path / "y.npy")])
    with pytest.raises(tiled.Error, match="output relu: another output"):
        network.run(image, out=[relu, relu])
    # by another name
    (tmp_path / "link.npy").symlink_to(tmp_path / "y.npy")
    with pytest.raises(tiled.Error, match="output relu: another output goes to the same place"):
        network.run(image, out=[tmp_path / "y.npy", tmp_path / "link.npy"])
    # what is read while it is written
    both = Sliced(image.copy())
    with pytest.raises(tiled.Error, match="output abs: is input x too, which is read while it is written"):
        network.run(both, out=[Sliced(image.copy()), both])
    assert (both._array == image).all()
    # an array without images has the other axes of the inputs
    pixels = numpy.moveaxis(image, 0, -1)[None]
    out = [numpy.empty((7, 9, 3), numpy.float32) for _ in range(2)]
    network.run(pixels, axes="NHWC", out=out)
    assert (out[0] == numpy.maximum(pixels[0], 0)).all()
    numpy.save(tmp_path / "x.npy", image)
    with pytest.raises(tiled.Error, match="axes 'HWC' are of arrays"):
        network.run(tmp_path / "x.npy", axes="HWC")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_plan_runs_on_in_a_forked_process(network, image):
    plan = network.plan(image, threads=2)
    wanted = plan.run(image)
    child = os.fork()
    if child == 0:
        os._exit(0 if (plan.run(image) == wanted).all() else 1)
    for _ in range(200):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0


def test_what_an_object_raises_comes_through(network, image):
    class Torn(Sliced):
        def __getitem__(self, key):
            if key[2].stop > 30:
                raise OSError("the disk is gone")
            return super().__getitem__(key)

    with pytest.raises(OSError, match="the disk is gone"):
        network.run(Torn(image))

    class Short(Sliced):
        def __getitem__(self, key):
            return super().__getitem__(key)[..., 1:]

    with pytest.raises(tiled.Error, match="x: rows .* are f32 of shape .*, not f32 of shape"):
        network.run(Short(image))
    with pytest.raises(tiled.Error, match="output pool: wants a path, an array, or an object"):
        network.run(image, out=object())


def test_files_are_read_and_written(network, image, tmp_path):
    wanted = network.run(image)
    numpy.save(tmp_path / "x.npy", image)
    assert network.run(tmp_path / "x.npy", out=str(tmp_path / "y.npy")) == str(tmp_path / "y.npy")
    assert (numpy.load(tmp_path / "y.npy") == wanted).all()
    mapped = numpy.load(tmp_path / "x.npy", mmap_mode="r")
    assert (network.run(mapped) == wanted).all()
    out = numpy.lib.format.open_memmap(tmp_path / "z.npy", "w+", numpy.float32, wanted.shape)
    network.run(mapped, out=out)
    assert (numpy.load(tmp_path / "z.npy") == wanted).all()
    network.run(tmp_path / "x.npy", out=tmp_path / "classes.npy", argmax=True)
    classes = numpy.load(tmp_path / "classes.npy")
    assert classes.dtype == numpy.uint8 and (classes == network.run(image, argmax=True)).all()
    with pytest.raises(tiled.Error, match="none.npy"):
        network.run(tmp_path / "none.npy")
    with pytest.raises(tiled.Error, match="y.jpeg"):
        network.run(image, out=tmp_path / "y.jpeg")


def test_progress_is_heard_to_the_end_and_may_end_the_run(network, image, tmp_path):
    heard = []
    network.run(image, progress=lambda done, total: heard.append((done, total)))
    assert heard and heard[-1][0] == heard[-1][1] > 0

    def refuse(done, total):
        raise RuntimeError("enough")

    big = tiled.Network("light", "random:1")
    with pytest.raises(RuntimeError, match="enough"):
        big.run(
            numpy.zeros((3, 4000, 4000), numpy.float32),
            progress=refuse,
            out=tmp_path / "y.npy",
            memory="64 MiB",
            threads=1,
        )
    assert not list(tmp_path.glob("*y*"))


def test_ctrl_c_ends_a_run_and_leaves_no_file(tmp_path):
    network = tiled.Network("vgg16", "random:1")

    def interrupt():
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    # what runs in the background may have it ignored, and Python then leaves it so
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            for _ in range(20):
                network.run(numpy.zeros((3, 1500, 1500), numpy.float32), out=tmp_path / "y.npy", memory="1 GiB")
    finally:
        signal.signal(signal.SIGINT, before)
    assert not [path for path in tmp_path.iterdir() if path.name != "y.npy"]


def test_a_plan_runs_on_one_thread_at_a_time(network, image):
    plan = network.plan(image)
    refusals = []

    class Again(Sliced):
        def __getitem__(self, key):
            try:
                plan.run(image)
            except tiled.Error as error:
                refusals.append(str(error))
            return super().__getitem__(key)

    plan.run(Again(image))
    assert refusals and "the plan is running" in refusals[0]
    assert (plan.run(image) == network.run(image)).all()

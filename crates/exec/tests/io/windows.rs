//! What every source and sink must do, for every kind of window.

use tiled_exec::{Sink, Source};
use tiled_geometry::{Interval, Region};
use tiled_tensor::{Element, Layout, Tensor, View, ViewMut};

/// The seed of the order of the regions.
const SEED: u64 = 7;

/// A region of rows and columns.
pub(crate) fn region(rows: [i64; 2], cols: [i64; 2]) -> Region<2> {
    Region::from_rows_cols(Interval::new(rows[0], rows[1]), Interval::new(cols[0], cols[1]))
}

/// The whole of a shape.
pub(crate) fn whole(shape: [usize; 4]) -> Region<2> {
    Region::whole([shape[2], shape[3]].map(|extent| i64::try_from(extent).unwrap()))
}

/// A tensor whose elements all differ.
pub(crate) fn numbered<T: Element>(shape: [usize; 4]) -> Tensor<T> {
    let mut next = 0.0;
    Tensor::from_fn(shape, |_| {
        next += 1.0;
        T::from_f64(next * 0.125 - 40.0)
    })
    .unwrap()
}

/// Regions of `tile` that partition the shape, in a shuffled order, the last ones ragged.
pub(crate) fn tiles(shape: [usize; 4], tile: [i64; 2]) -> Vec<Region<2>> {
    let [height, width] = [shape[2], shape[3]].map(|extent| i64::try_from(extent).unwrap());
    let mut tiles = Vec::new();
    for y in (0..height).step_by(usize::try_from(tile[0]).unwrap()) {
        for x in (0..width).step_by(usize::try_from(tile[1]).unwrap()) {
            tiles.push(region([y, height.min(y + tile[0])], [x, width.min(x + tile[1])]));
        }
    }
    let mut state = SEED;
    for i in (1..tiles.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        tiles.swap(i, usize::try_from(state >> 33).unwrap() % (i + 1));
    }
    tiles
}

/// Layouts of windows that hold `tile`: exact, with a margin, blocked, and rings of rows.
fn layouts(shape: [usize; 4], tile: Region<2>) -> Vec<Layout> {
    let [batch, channels, height, width] = shape;
    let [height, width] = [height, width].map(|extent| i64::try_from(extent).unwrap());
    let [rows, cols] = tile.axes();
    let wide = region(
        [(rows.begin() - 2).max(0), (rows.end() + 1).min(height)],
        [(cols.begin() - 1).max(0), (cols.end() + 3).min(width)],
    );
    let mut layouts = Vec::new();
    for block in [1, 4, 16] {
        let len = |rows: Interval| usize::try_from(rows.len()).unwrap();
        layouts.push(Layout::new(batch, channels, block, tile, len(rows)).unwrap());
        layouts.push(Layout::new(batch, channels, block, wide, len(wide.rows())).unwrap());
        // A window that slides over all rows and stores a few more than these.
        let slid = Region::from_rows_cols(Interval::whole(height), wide.cols());
        let ring = len(wide.rows()) + 1;
        layouts.push(Layout::new(batch, channels, block, slid, ring).unwrap().with_rows(wide.rows()));
    }
    layouts
}

/// What the storage holds before: no element of any tensor here.
fn garbage<T: Element>() -> T {
    T::from_f64(-12345.0)
}

/// Every tile of the source arrives in every kind of window, and nothing else of the window changes.
pub(crate) fn check_source<T: Element>(source: &dyn Source<T>, expected: &Tensor<T>, tile: [i64; 2]) {
    let shape = expected.shape();
    assert_eq!(source.shape(), shape);
    let tiles = tiles(shape, tile);
    for tile in &tiles {
        for layout in layouts(shape, *tile) {
            let mut storage = vec![garbage::<T>(); layout.len()];
            source.read(*tile, &mut ViewMut::new(&mut storage, layout)).unwrap();
            let mut lanes = 0;
            for n in 0..shape[0] {
                for c in 0..shape[1] {
                    for y in tile.rows().begin()..tile.rows().end() {
                        for x in tile.cols().begin()..tile.cols().end() {
                            let offset = layout.offset(n, c, y, x);
                            let (got, want) = (storage[offset], expected.view().get(n, c, y, x));
                            assert_eq!(
                                got.to_bits_u64(),
                                want.to_bits_u64(),
                                "({n},{c},{y},{x}) of {layout:?}: {got}, not {want}"
                            );
                            storage[offset] = garbage();
                            lanes += 1;
                        }
                    }
                }
            }
            assert_eq!(lanes, shape[0] * shape[1] * usize::try_from(tile.volume()).unwrap());
            assert!(storage.iter().all(|value| *value == garbage()), "only the region of {layout:?} changes");
        }
    }
}

/// Writes every tile of the tensor, in a shuffled order and from every kind of window in turn.
pub(crate) fn write_tiles<T: Element>(sink: &dyn Sink<T>, tensor: &Tensor<T>, tile: [i64; 2]) {
    write_tiles_from(sink, tensor, tile, 0);
}

/// The same, the first region from the window of this turn.
pub(crate) fn write_tiles_from<T: Element>(
    sink: &dyn Sink<T>,
    tensor: &Tensor<T>,
    tile: [i64; 2],
    first: usize,
) {
    let shape = tensor.shape();
    assert_eq!(sink.shape(), shape);
    for (turn, tile) in (first..).zip(tiles(shape, tile)) {
        let layouts = layouts(shape, tile);
        let layout = layouts[turn % layouts.len()];
        sink.write(tile, &View::new(&window(tensor, layout), layout)).unwrap();
    }
}

/// The storage of a window that holds its region of the tensor, with NaN in padding lanes and other rows.
pub(crate) fn window<T: Element>(tensor: &Tensor<T>, layout: Layout) -> Vec<T> {
    let mut storage = vec![T::from_f64(f64::NAN); layout.len()];
    for n in 0..layout.batch() {
        for c in 0..layout.channels() {
            for y in layout.rows().begin()..layout.rows().end() {
                for x in layout.cols().begin()..layout.cols().end() {
                    storage[layout.offset(n, c, y, x)] = tensor.view().get(n, c, y, x);
                }
            }
        }
    }
    storage
}

/// Reads the whole of a source.
pub(crate) fn read_all<T: Element>(source: &dyn Source<T>) -> Tensor<T> {
    let mut tensor = Tensor::zeros(source.shape()).unwrap();
    source.read(whole(source.shape()), &mut tensor.view_mut()).unwrap();
    tensor
}

/// The bits of a tensor.
pub(crate) fn bits<T: Element>(tensor: &Tensor<T>) -> Vec<u64> {
    tensor.data().iter().map(|value| value.to_bits_u64()).collect()
}

//! Round trips through files.

use std::path::Path;

use tiled_exec::{FileSink, FileSource, Sink, Source, create_sink, open_source};
use tiled_tensor::{DType, Element, Layout, Tensor, View};

use crate::windows::{bits, check_source, numbered, read_all, region, tiles, whole, window, write_tiles};

const SHAPES: [[usize; 4]; 4] = [[2, 3, 13, 7], [1, 1, 1, 1], [1, 17, 5, 9], [3, 2, 4, 31]];

fn round_trip<T: Element>(path: &Path, open: impl Fn(&Path, [usize; 4]) -> Box<dyn Source<T>>) {
    for shape in SHAPES {
        for tile in [[3, 4], [2, 31], [100, 100]] {
            let tensor = numbered::<T>(shape);
            let sink = create_sink::<T>(path, shape).unwrap();
            write_tiles(&*sink, &tensor, tile);
            sink.finish().unwrap();
            let source = open(path, shape);
            assert_eq!(source.resident_bytes() + sink.resident_bytes(), 0);
            check_source(&*source, &tensor, tile);
        }
    }
}

#[test]
fn npy_files_give_back_every_bit_of_both_types() {
    let folder = tempfile::tempdir().unwrap();
    round_trip::<f32>(&folder.path().join("a.npy"), |path, _| open_source(path).unwrap());
    round_trip::<f64>(&folder.path().join("b.NPY"), |path, _| open_source(path).unwrap());
}

#[test]
fn raw_files_give_back_every_bit_of_both_types() {
    let folder = tempfile::tempdir().unwrap();
    round_trip::<f32>(&folder.path().join("a.raw"), |path, shape| {
        Box::new(FileSource::open_raw(path, shape, DType::F32).unwrap())
    });
    round_trip::<f64>(&folder.path().join("b.bin"), |path, shape| {
        Box::new(FileSource::open_raw(path, shape, DType::F64).unwrap())
    });
}

#[test]
fn rows_longer_than_the_buffer_pass_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.npy");
    let shape = [1, 2, 3, 40_000];
    let tensor = numbered::<f64>(shape);
    let sink = create_sink::<f64>(&path, shape).unwrap();
    write_tiles(&*sink, &tensor, [2, 30_001]);
    sink.finish().unwrap();
    let source = open_source::<f64>(&path).unwrap();
    for tile in [[1, 40_000], [3, 25_000], [3, 40_000]] {
        check_source(&*source, &tensor, tile);
    }
}

#[test]
fn values_that_are_no_numbers_keep_their_bits() {
    let special = [
        f32::from_bits(0x7f80_0001), // a signalling NaN
        f32::from_bits(0xffc1_2345),
        -0.0,
        f32::NEG_INFINITY,
        f32::from_bits(1), // the least number above 0
        f32::MAX,
    ];
    let tensor = Tensor::from_fn([1, 1, 2, 3], |[_, _, y, x]| special[y * 3 + x]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("special.npy");
    let sink = create_sink::<f32>(&path, tensor.shape()).unwrap();
    sink.write(whole(tensor.shape()), &tensor.view()).unwrap();
    sink.finish().unwrap();
    assert_eq!(bits(&read_all(&*open_source::<f32>(&path).unwrap())), bits(&tensor));
}

#[test]
fn types_are_converted_to_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    let shape = [1, 1, 1, 3];
    let values = [0.1, 1.0e300, -7.25];
    let tensor = Tensor::<f64>::from_fn(shape, |[.., x]| values[x]).unwrap();

    let wide = folder.path().join("wide.npy");
    let sink = FileSink::create_npy(&wide, shape, DType::F64).unwrap();
    sink.write(whole(shape), &tensor.view()).unwrap();
    Sink::<f64>::finish(&sink).unwrap();
    let narrowed = read_all(&*open_source::<f32>(&wide).unwrap());
    assert_eq!(narrowed.data(), [0.1_f32, f32::INFINITY, -7.25]);

    let narrow = folder.path().join("narrow.npy");
    let sink = FileSink::create_npy(&narrow, shape, DType::F32).unwrap();
    sink.write(whole(shape), &tensor.view()).unwrap();
    Sink::<f64>::finish(&sink).unwrap();
    let widened = read_all(&*open_source::<f64>(&narrow).unwrap());
    assert_eq!(widened.data(), [f64::from(0.1_f32), f64::INFINITY, -7.25]);

    let sink = FileSink::create_npy(&narrow, shape, DType::F64).unwrap();
    sink.write(whole(shape), &narrowed.view()).unwrap();
    Sink::<f32>::finish(&sink).unwrap();
    let back = read_all(&*open_source::<f64>(&narrow).unwrap());
    assert_eq!(back.data(), [f64::from(0.1_f32), f64::INFINITY, -7.25]);
}

#[test]
fn threads_write_and_read_disjoint_regions_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("threads.npy");
    let shape = [2, 5, 61, 47];
    let tensor = numbered::<f32>(shape);
    let sink = create_sink::<f32>(&path, shape).unwrap();
    let tiles = tiles(shape, [4, 9]);
    assert!(tiles.len() > 50);
    std::thread::scope(|scope| {
        for share in tiles.chunks(tiles.len().div_ceil(4)) {
            let (sink, tensor) = (&sink, &tensor);
            scope.spawn(move || {
                for tile in share {
                    let rows = usize::try_from(tile.rows().len()).unwrap();
                    let layout = Layout::new(shape[0], shape[1], 4, *tile, rows).unwrap();
                    sink.write(*tile, &View::new(&window(tensor, layout), layout)).unwrap();
                }
            });
        }
    });
    sink.finish().unwrap();
    let source = open_source::<f32>(&path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(read_all(&*source).data(), tensor.data()));
        }
    });
}

#[test]
fn an_empty_region_is_read_and_written_without_effect() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.npy");
    let shape = [1, 2, 3, 4];
    let tensor = numbered::<f32>(shape);
    let sink = create_sink::<f32>(&path, shape).unwrap();
    sink.write(region([2, 2], [1, 3]), &tensor.view()).unwrap();
    sink.write(whole(shape), &tensor.view()).unwrap();
    sink.write(region([0, 3], [4, 4]), &tensor.view()).unwrap();
    sink.finish().unwrap();
    let mut copy = numbered::<f32>(shape);
    open_source::<f32>(&path).unwrap().read(region([1, 1], [0, 4]), &mut copy.view_mut()).unwrap();
    assert_eq!(copy.data(), tensor.data());
}

#[test]
fn a_file_is_read_while_another_takes_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("same.npy");
    let shape = [1, 1, 4, 5];
    let first = numbered::<f32>(shape);
    let write = |tensor: &Tensor<f32>| {
        let sink = create_sink::<f32>(&path, shape).unwrap();
        write_tiles(&*sink, tensor, [2, 2]);
        sink.finish().unwrap();
    };
    write(&first);
    let source = open_source::<f32>(&path).unwrap();
    write(&Tensor::zeros(shape).unwrap());
    assert_eq!(read_all(&*source).data(), first.data());
    assert!(read_all(&*open_source::<f32>(&path).unwrap()).data().iter().all(|value| *value == 0.0));
}

//! Functions as sources and sinks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tiled_exec::{
    Cancel, FnSink, FnSource, IoError, NoProgress, PointSource, Progress, Sink, Source, peak_rss_bytes,
    reset_peak_rss,
};
use tiled_geometry::Region;
use tiled_tensor::{Tensor, View, ViewMut};

use crate::windows::{check_source, numbered, tiles, whole, write_tiles};

const SHAPE: [usize; 4] = [2, 3, 7, 5];

#[test]
fn a_function_of_regions_is_a_source() {
    let tensor = numbered::<f32>(SHAPE);
    let calls = AtomicUsize::new(0);
    let source = FnSource::new("camera", SHAPE, |region: Region<2>, output: &mut ViewMut<'_, f32>| {
        calls.fetch_add(1, Ordering::Relaxed);
        for n in 0..2 {
            for c in 0..3 {
                for y in region.rows().begin()..region.rows().end() {
                    for x in region.cols().begin()..region.cols().end() {
                        output.set(n, c, y, x, tensor.view().get(n, c, y, x));
                    }
                }
            }
        }
        Ok(())
    })
    .unwrap();
    check_source(&source, &tensor, [2, 3]);
    assert!(calls.load(Ordering::Relaxed) > 1);
}

#[test]
fn a_function_of_points_is_a_source() {
    let value = |[n, c, y, x]: [usize; 4]| (n * 1000 + c * 100 + y * 10 + x) as f64;
    let source = PointSource::new("points", SHAPE, value).unwrap();
    check_source(&source, &Tensor::from_fn(SHAPE, value).unwrap(), [3, 2]);
}

#[test]
fn a_function_is_a_sink() {
    let tensor = numbered::<f32>(SHAPE);
    let copy = Mutex::new(Tensor::<f32>::zeros(SHAPE).unwrap());
    let sink = FnSink::new("screen", SHAPE, |region: Region<2>, input: &View<'_, f32>| {
        let mut copy = copy.lock().unwrap();
        for n in 0..2 {
            for c in 0..3 {
                for y in region.rows().begin()..region.rows().end() {
                    for x in region.cols().begin()..region.cols().end() {
                        copy.view_mut().set(n, c, y, x, input.get(n, c, y, x));
                    }
                }
            }
        }
        Ok(())
    })
    .unwrap();
    assert!(tiles(SHAPE, [2, 2]).len() > 1);
    write_tiles(&sink, &tensor, [2, 2]);
    sink.finish().unwrap();
    drop(sink);
    assert_eq!(copy.into_inner().unwrap().data(), tensor.data());
}

#[test]
fn the_error_of_a_function_names_it() {
    let fail =
        |_: Region<2>, _: &mut ViewMut<'_, f32>| Err(IoError::from_function("camera", "lens cap is on"));
    let source = FnSource::new("camera", SHAPE, fail).unwrap();
    let mut tensor = Tensor::<f32>::zeros(SHAPE).unwrap();
    let error = source.read(whole(SHAPE), &mut tensor.view_mut()).unwrap_err();
    assert_eq!(error.to_string(), "`camera`: lens cap is on");

    let fail = |_: Region<2>, _: &View<'_, f32>| Err(IoError::from_function("screen", "dark"));
    let sink = FnSink::new("screen", SHAPE, fail).unwrap();
    let error = sink.write(whole(SHAPE), &tensor.view()).unwrap_err();
    assert_eq!(error.to_string(), "`screen`: dark");
    let error = sink.finish().unwrap_err();
    assert_eq!(error.to_string(), "`screen`: incomplete: 210 elements expected, 0 written");
}

#[test]
fn a_region_outside_the_tensor_or_the_window_is_refused() {
    let source = PointSource::new("points", SHAPE, |_| 0.0_f32).unwrap();
    let mut larger = Tensor::<f32>::zeros([2, 3, 8, 8]).unwrap();
    let error = source.read(whole([2, 3, 8, 8]), &mut larger.view_mut()).unwrap_err();
    assert!(matches!(error, IoError::Region { .. }), "{error:?}");
    let mut smaller = Tensor::<f32>::zeros([2, 3, 7, 4]).unwrap();
    let error = source.read(whole(SHAPE), &mut smaller.view_mut()).unwrap_err();
    assert!(matches!(error, IoError::Region { .. }), "{error:?}");
    let mut other = Tensor::<f32>::zeros([2, 4, 7, 5]).unwrap();
    let error = source.read(whole(SHAPE), &mut other.view_mut()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`points`: window has batch 2 and 4 channels, tensor has batch 2 and 3 channels"
    );
}

#[test]
fn clones_of_a_cancel_share_it() {
    let cancel = Cancel::new();
    let progress: &dyn Progress = &cancel.clone();
    progress.step(1, 2, "forward");
    assert!(!progress.is_cancelled());
    std::thread::spawn(move || cancel.cancel()).join().unwrap();
    assert!(progress.is_cancelled());
    assert!(!NoProgress.is_cancelled());
}

#[cfg(target_os = "linux")]
#[test]
fn the_peak_covers_what_is_resident() {
    let before = peak_rss_bytes().unwrap();
    let len = usize::try_from(before).unwrap() + (64 << 20);
    let ballast = vec![1_u8; len];
    assert_eq!(ballast.iter().map(|byte| u64::from(*byte)).sum::<u64>(), len as u64);
    assert!(peak_rss_bytes().unwrap() >= len as u64);
    drop(ballast);
    if reset_peak_rss() {
        assert!(peak_rss_bytes().unwrap() < len as u64);
    } else {
        eprintln!("skipped: the system does not let a process reset its peak");
    }
}

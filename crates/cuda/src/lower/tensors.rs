//! Copies between windows and tensors of a caller that lie on the device.

use tiled_geometry::Region;
use tiled_kernel::DeviceError;
use tiled_tensor::{DeviceTensor, Element};

use super::grid::of_lanes;
use super::{Launches, Window, typed};
use crate::args::{Part, Strided};

/// Copies a region of a tensor into a window.
pub(crate) fn import<T: Element>(
    device: &impl Launches,
    tensor: &DeviceTensor<T>,
    window: &Window,
    region: Region<2>,
) -> Result<(), DeviceError> {
    copy(device, ["import_f32", "import_f64"], tensor, window, region)
}

/// Copies a region of a window into a tensor.
pub(crate) fn export<T: Element>(
    device: &impl Launches,
    window: &Window,
    tensor: &DeviceTensor<T>,
    region: Region<2>,
) -> Result<(), DeviceError> {
    copy(device, ["export_f32", "export_f64"], tensor, window, region)
}

fn copy<T: Element>(
    device: &impl Launches,
    names: [&'static str; 2],
    tensor: &DeviceTensor<T>,
    window: &Window,
    region: Region<2>,
) -> Result<(), DeviceError> {
    if region.is_empty() {
        return Ok(());
    }
    window.require(region);
    let [batch, channels, height, width] = tensor.shape();
    let whole = Region::whole([height, width].map(|extent| i64::try_from(extent).unwrap_or(i64::MAX)));
    assert!(whole.contains_region(region), "tensor holds {whole}, needed {region}");
    let held = [window.layout.batch(), window.layout.channels()];
    assert_eq!(held, [batch, channels], "window and tensor have the same images and channels");
    let args = Strided {
        window: window.view(),
        part: Part::new(region, batch),
        data: tensor.address(),
        strides: tensor.strides().map(|stride| stride as i64),
    };
    device.launch(typed(T::DTYPE, names), of_lanes(&window.layout, region, 1), &args)
}

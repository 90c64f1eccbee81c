//! Tensors in memory that the host cannot reach.

use std::fmt;
use std::marker::PhantomData;

use crate::Element;

/// A device with memory of its own, by the numbers that DLPack has for it.
///
/// ```
/// use tiled_tensor::MemoryDevice;
/// assert_eq!(MemoryDevice { kind: MemoryDevice::CUDA, index: 1 }.to_string(), "cuda:1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryDevice {
    /// The kind of its memory.
    pub kind: i32,
    /// Which of its kind, from zero.
    pub index: i32,
}

impl MemoryDevice {
    /// The kind of memory that is the host's: `kDLCPU`.
    pub const CPU: i32 = 1;
    /// That of NVIDIA GPUs: `kDLCUDA`.
    pub const CUDA: i32 = 2;
    /// That of a device that is no other's: `kDLExtDev`. The memory of simulated devices is of it.
    pub const OTHER: i32 = 12;
}

impl fmt::Display for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Self::CPU => f.write_str("cpu"),
            Self::CUDA => write!(f, "cuda:{}", self.index),
            kind => write!(f, "device {} of kind {kind}", self.index),
        }
    }
}

/// An NCHW tensor of a caller in the memory of a device, with any strides: plain data, as the host cannot look at its elements.
///
/// Element (n, c, y, x) lies at `address + (n·strides[0] + c·strides[1] + y·strides[2] + x·strides[3])·size` in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTensor<T> {
    device: MemoryDevice,
    address: u64,
    shape: [usize; 4],
    strides: [isize; 4],
    stream: u64,
    element: PhantomData<T>,
}

/// A description of a tensor that leaves the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "tensor at {address:#x} on {device}: shape {shape:?} with strides {strides:?} leaves the address space"
)]
pub struct DeviceTensorError {
    /// Where it lies.
    pub device: MemoryDevice,
    /// The address of its first element.
    pub address: u64,
    /// Its extents, NCHW.
    pub shape: [usize; 4],
    /// Its strides, in elements.
    pub strides: [isize; 4],
}

impl<T: Element> DeviceTensor<T> {
    /// A tensor whose first element lies at an address. `stream` is what its contents are ordered by, as the device names it: what was asked
    /// of it before comes before whatever is done with the tensor.
    ///
    /// # Errors
    /// Where elements would lie outside the address space, or at no multiple of their size.
    ///
    /// # Safety
    /// As long as this or a copy of it is used:
    /// - all its elements lie in memory of the device that stays allocated;
    /// - nothing else writes them, and where the tensor is written nothing else reads them, but what was asked of `stream` before;
    /// - `stream` is one of the device.
    ///
    /// ```
    /// use tiled_tensor::{DeviceTensor, MemoryDevice};
    /// let device = MemoryDevice { kind: MemoryDevice::OTHER, index: 0 };
    /// // SAFETY: nobody uses it
    /// let tensor = unsafe { DeviceTensor::<f32>::new(device, 0x1000, [1, 2, 3, 4], [24, 12, -4, 1], 0) }?;
    /// assert_eq!(tensor.bytes(), (0x1000 - 2 * 4 * 4, 4 * (12 + 2 * 4 + 3 + 1)));
    /// # Ok::<(), tiled_tensor::DeviceTensorError>(())
    /// ```
    pub unsafe fn new(
        device: MemoryDevice,
        address: u64,
        shape: [usize; 4],
        strides: [isize; 4],
        stream: u64,
    ) -> Result<Self, DeviceTensorError> {
        let tensor = Self { device, address, shape, strides, stream, element: PhantomData };
        let [first, last] = tensor.reach();
        let size = i128::try_from(size_of::<T>()).unwrap_or(8);
        let (low, high) = (i128::from(address) + first * size, i128::from(address) + (last + 1) * size);
        let is_within =
            low > 0 && high <= i128::from(i64::MAX) && address.is_multiple_of(size_of::<T>() as u64);
        if is_within { Ok(tensor) } else { Err(DeviceTensorError { device, address, shape, strides }) }
    }

    /// The device whose memory it lies in.
    #[must_use]
    pub const fn device(&self) -> MemoryDevice {
        self.device
    }

    /// The address of element (0, 0, 0, 0).
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// The extents, NCHW.
    #[must_use]
    pub const fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// The distances between neighbours along each axis, in elements.
    #[must_use]
    pub const fn strides(&self) -> [isize; 4] {
        self.strides
    }

    /// The stream that its contents are ordered by.
    #[must_use]
    pub const fn stream(&self) -> u64 {
        self.stream
    }

    /// The elements from the lowest to the first one, and from the lowest to the highest, both counted.
    #[must_use]
    pub fn span(&self) -> (usize, usize) {
        let [first, last] = self.reach();
        // it lies in the address space, as `new` has shown
        let elements = |count: i128| usize::try_from(count).unwrap_or(usize::MAX);
        (elements(-first), elements(last - first + 1))
    }

    /// The address of its lowest byte, and the bytes from there to its highest.
    #[must_use]
    pub fn bytes(&self) -> (u64, usize) {
        let ((before, len), size) = (self.span(), size_of::<T>());
        (self.address - (before * size) as u64, len * size)
    }

    /// The lowest and the highest element, from the first one.
    fn reach(&self) -> [i128; 2] {
        let mut reach = [0; 2];
        for (extent, stride) in self.shape.iter().zip(self.strides) {
            let steps = i128::try_from(extent.saturating_sub(1)).unwrap_or(i128::from(i64::MAX));
            // 2^64 steps of 2^63 elements are a number
            let along = i128::try_from(stride).unwrap_or(0).saturating_mul(steps);
            reach[usize::from(along > 0)] += along.clamp(i128::MIN / 64, i128::MAX / 64);
        }
        reach
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: MemoryDevice = MemoryDevice { kind: MemoryDevice::OTHER, index: 0 };

    fn make(
        address: u64,
        shape: [usize; 4],
        strides: [isize; 4],
    ) -> Result<DeviceTensor<f64>, DeviceTensorError> {
        // SAFETY: nobody uses it
        unsafe { DeviceTensor::new(DEVICE, address, shape, strides, 0) }
    }

    #[test]
    fn strides_of_any_sign_span_what_they_reach() {
        let tensor = make(1 << 20, [2, 3, 4, 5], [60, 20, 5, -1]).expect("it fits");
        assert_eq!(tensor.span(), (4, 4 + 60 + 40 + 15 + 1));
        let repeated = make(1 << 20, [2, 3, 4, 5], [0; 4]).expect("it fits");
        assert_eq!(repeated.bytes(), (1 << 20, 8));
    }

    #[test]
    fn what_leaves_the_address_space_is_refused() {
        for (address, shape, strides) in [
            (8, [1, 1, 1, 2], [1, 1, 1, -2]),
            (u64::MAX - 7, [1; 4], [1; 4]),
            (12, [1; 4], [1; 4]),
            (0, [1; 4], [1; 4]),
            (1 << 40, [usize::MAX; 4], [isize::MAX; 4]),
            (1 << 40, [usize::MAX; 4], [isize::MIN; 4]),
        ] {
            let error = make(address, shape, strides).expect_err("it does not fit");
            assert!(error.to_string().contains("leaves the address space"), "{error}");
        }
    }
}

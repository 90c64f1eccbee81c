//! Generic code of this crate, compiled here for both types of elements.
//!
//! The development profile shares instances between crates: what is compiled here no test, example or program compiles again. Of the 18 s
//! that a test of 200 lines took, nearly all went there.

use std::hint::black_box;

use tiled_tensor::Element;

use crate::{ParamTensor, Parameters, Planner, initialise};

/// Refers to what takes long to compile.
#[doc(hidden)]
pub fn instances() {
    of::<f32>();
    of::<f64>();
}

fn of<T: Element>() {
    black_box([
        Planner::<T>::plan as *const (),
        Planner::<T>::plan_unless as *const (),
        Parameters::<T>::new as *const (),
        Parameters::<T>::initialised as *const (),
        Parameters::<T>::zeros as *const (),
        Parameters::<T>::try_clone as *const (),
        Parameters::<T>::check as *const (),
        ParamTensor::<T>::new as *const (),
        initialise::<T> as *const (),
    ]);
}

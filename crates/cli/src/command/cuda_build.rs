//! `tiled cuda-build`: the kernels of GPUs as a file.

use std::time::Instant;

use tiled::cuda::bundle::Bundle;
use tiled::exec::write_whole;

use crate::args::CudaBuildArgs;
use crate::error::CliError;
use crate::job::wrote;
use crate::progress::Session;
use crate::report::print;

pub(crate) fn run(args: &CudaBuildArgs, session: &Session) -> Result<(), CliError> {
    let begin = Instant::now();
    let bundle = Bundle::build(&args.arch).map_err(|source| CliError::Kernels { source })?;
    session.check()?;
    write_whole(&args.out, &bundle.to_bytes())?;
    print(&format!("{}, {:.1} s", wrote(&args.out, &[]), begin.elapsed().as_secs_f64()))
}

//! Every way to hold values gives the bits of the untiled run.

mod networks;
mod regressions;
mod released;
mod run;

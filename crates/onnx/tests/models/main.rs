//! Models built of messages: what they become, what they compute, and what is refused.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod adaptive;
mod arithmetic;
mod assigned;
mod beside;
mod branches;
mod build;
mod channels_last;
mod elementwise;
mod exact;
mod exporters;
mod external;
mod filled;
mod folded;
mod formulas;
mod import;
mod lanes;
mod masks;
mod norms;
mod pixels;
mod pools;
mod rearranged;
mod reduced;
mod refused;
mod repeated;
mod resized;
mod rows;
mod runs;
mod sized;
mod split_attention;
mod squeezed;
mod strips;
mod weights;
mod whole;
mod words;

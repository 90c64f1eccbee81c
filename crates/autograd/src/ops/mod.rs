//! The operators, by family: each checks its operands, computes, and goes onto the tape.

mod arrange;
mod attention;
mod compare;
mod elementwise;
mod in_place;
mod index;
mod loss;
mod norm;
mod product;
mod reduce;

pub use arrange::{concat, stack};
pub use attention::{AttentionOptions, scaled_dot_product_attention};
pub(crate) use attention::{attend, attend_packed, seen_softmax};
pub use index::embedding;
pub use loss::{
    CrossEntropyOptions, Reduction, Target, bce_with_logits, cross_entropy, l1_loss, mse_loss, nll_loss,
    smooth_l1_loss,
};

//! The operators of ONNX that a network has, or that leave no node in it: a function for each, and one table.
//!
//! A rule reads the operands and attributes of its [`Site`] and returns what the node's first output stands for. To add an
//! operator, write its rule in the file of its family and name it in the table.

mod activation;
mod adaptive;
mod arithmetic;
mod array;
mod assigned;
mod beside;
mod branch;
mod broadcast;
mod choice;
mod computed;
mod constant;
mod conv;
mod elements;
mod filled;
mod grid;
mod groups;
mod lanes;
mod last;
mod layout;
mod linear;
mod norm;
mod norming;
mod operator;
mod part;
mod permuted;
mod pixels;
mod plane;
mod pool;
mod rearranged;
mod reduce;
mod repeated;
mod resize;
mod response;
mod row;
mod shuffle;
mod sized;
mod sizes;
mod split;
mod spread;
mod stack;
mod strip;
mod table;
mod whole;
mod window;

use self::operator::operator;
use crate::Reason;
use crate::import::site::Site;
use crate::import::value::Value;

pub(crate) use self::operator::{Operator, is_quantised, leaves_padding};

/// All operators that are read, by name in order.
static OPERATORS: [Operator; 98] = [
    operator("Abs", &[], activation::abs),
    operator("Add", &[], arithmetic::add),
    operator("And", &[], choice::and),
    operator("ArgMax", &["axis", "keepdims", "select_last_index"], part::arg_max),
    operator("AveragePool", pool::AVERAGE, pool::average),
    operator("BatchNormalization", norm::BATCH_NORM, norm::batch_norm),
    operator("Cast", &["to", "saturate", "round_mode"], constant::cast),
    operator("Ceil", &[], sizes::ceil),
    operator("Celu", &["alpha"], activation::celu),
    operator("Clip", &["max", "min"], activation::clip),
    operator("Concat", &["axis"], layout::concat),
    operator("Constant", constant::CONSTANT, constant::constant),
    operator("ConstantOfShape", &["value"], constant::constant_of_shape),
    operator("Conv", conv::CONV, conv::conv),
    operator("ConvTranspose", conv::CONV_TRANSPOSE, conv::conv_transpose),
    operator("DepthToSpace", &["blocksize", "mode"], shuffle::depth_to_space),
    operator("Div", &[], arithmetic::div),
    operator("Dropout", &["ratio", "seed"], constant::dropout),
    operator("Elu", &["alpha"], activation::elu),
    operator("Equal", &[], choice::equal),
    operator("Erf", &[], activation::erf),
    operator("Exp", &[], activation::exp),
    operator("Expand", &[], resize::expand),
    operator("Flatten", &["axis"], layout::flatten),
    operator("Floor", &[], sizes::floor),
    operator("Gather", &["axis"], sizes::gather),
    operator("GatherND", &["batch_dims"], adaptive::gather_nd),
    operator("Gelu", &["approximate"], activation::gelu),
    operator("Gemm", &["alpha", "beta", "transA", "transB"], linear::gemm),
    operator("GlobalAveragePool", &[], pool::global_average),
    operator("GlobalMaxPool", &[], pool::global_max),
    operator("Greater", &[], choice::greater),
    operator("GreaterOrEqual", &[], choice::greater_or_equal),
    operator("GroupNormalization", groups::GROUP_NORM, groups::group_norm),
    operator("HardSigmoid", &["alpha", "beta"], activation::hard_sigmoid),
    operator("HardSwish", &[], activation::hard_swish),
    operator("Identity", &[], constant::identity),
    operator("If", branch::BRANCHES, branch::taken),
    operator("InstanceNormalization", &["epsilon"], groups::instance_norm),
    operator("LRN", &["alpha", "beta", "bias", "size"], norm::local_response),
    operator("LayerNormalization", norm::LAYER_NORM, norm::layer_norm),
    operator("LeakyRelu", &["alpha"], activation::leaky_relu),
    operator("Less", &[], choice::less),
    operator("LessOrEqual", &[], choice::less_or_equal),
    operator("Log", &[], activation::log),
    operator("LogSoftmax", &["axis"], norm::log_softmax),
    operator("MatMul", &[], linear::mat_mul),
    operator("Max", &[], arithmetic::max),
    operator("MaxPool", pool::MAX, pool::max),
    operator("Mean", &[], arithmetic::mean),
    operator("Min", &[], arithmetic::min),
    operator("Mish", &[], activation::mish),
    operator("Mod", &["fmod"], arithmetic::modulo),
    operator("Mul", &[], split::mul),
    operator("Neg", &[], activation::neg),
    operator("Not", &[], choice::not),
    operator("Or", &[], choice::or),
    operator("PRelu", &[], activation::prelu),
    operator("Pad", &["mode", "pads", "value"], conv::pad),
    operator("Pow", &[], arithmetic::pow),
    operator("RMSNormalization", norm::LAYER_NORM, norm::rms_norm),
    operator("Range", &["stash_type"], constant::range),
    operator("Reciprocal", &[], activation::reciprocal),
    operator("ReduceL1", reduce::REDUCE, reduce::l1),
    operator("ReduceL2", reduce::REDUCE, reduce::l2),
    operator("ReduceMax", reduce::REDUCE, reduce::max),
    operator("ReduceMean", reduce::REDUCE, reduce::mean),
    operator("ReduceMin", reduce::REDUCE, reduce::min),
    operator("ReduceProd", reduce::REDUCE, reduce::prod),
    operator("ReduceSum", reduce::REDUCE, reduce::sum),
    operator("ReduceSumSquare", reduce::REDUCE, reduce::sum_square),
    operator("Relu", &[], activation::relu),
    operator("Reshape", &["allowzero"], layout::reshape),
    operator("Resize", resize::RESIZE, resize::resize),
    operator("ScatterElements", assigned::SCATTER_ELEMENTS, assigned::by_elements),
    operator("ScatterND", &["reduction"], assigned::by_coordinates),
    operator("Selu", &["alpha", "gamma"], activation::selu),
    operator("Shape", &["start", "end"], sizes::shape),
    operator("Sigmoid", &[], activation::sigmoid),
    operator("Size", &[], sizes::size),
    operator("Slice", &["axes", "ends", "starts"], sizes::slice),
    operator("Softmax", &["axis"], split::softmax),
    operator("Softplus", &[], activation::softplus),
    operator("Softsign", &[], activation::softsign),
    operator("SpaceToDepth", &["blocksize", "mode"], shuffle::space_to_depth),
    operator("Split", &["axis", "num_outputs", "split"], part::split),
    operator("Sqrt", &[], norming::sqrt),
    operator("Squeeze", &["axes"], layout::squeeze),
    operator("Sub", &[], arithmetic::sub),
    operator("Sum", &[], arithmetic::sum),
    operator("Swish", &["alpha"], activation::swish),
    operator("Tanh", &[], activation::tanh),
    operator("ThresholdedRelu", &["alpha"], activation::thresholded_relu),
    operator("Tile", &[], repeated::tile),
    operator("Transpose", &["perm"], layout::transpose),
    operator("Unsqueeze", &["axes"], layout::unsqueeze),
    operator("Upsample", &["height_scale", "mode", "scales", "width_scale"], resize::upsample),
    operator("Where", &[], choice::choose),
];

/// What a node's output stands for.
pub(crate) fn made(operator: &Operator, site: &mut Site<'_>) -> Result<Value, Reason> {
    whole::made(operator, site)
}

/// What a node's output stands for, of operands that are no whole numbers.
fn of_floats(operator: &Operator, site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(made) = computed::made(operator, site)? {
        return Ok(made);
    }
    if let Some(made) = grid::made(operator, site)? {
        return Ok(made);
    }
    if let Some(made) = strip::made(operator, site)? {
        return Ok(made);
    }
    // a shape is known without the elements
    if !matches!(operator.name, "Shape" | "Size") {
        computed::settle(site)?;
    }
    if let Some(made) = lanes::made(operator, site)? {
        return Ok(made);
    }
    last::made(operator, site)
}

/// The operator of this name.
pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    OPERATORS.binary_search_by(|operator| operator.name.cmp(name)).ok().map(|place| &OPERATORS[place])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        assert!(OPERATORS.is_sorted_by(|a, b| a.name < b.name));
        assert!(find("Conv").is_some() && find("NonZero").is_none() && find("conv").is_none());
    }
}

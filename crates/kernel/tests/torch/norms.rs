//! Norms of each image, and what is computed of each pixel over its channels. `bindings/python/fixtures/torch_norms.py` wrote the
//! fixtures.

use tiled_kernel::batch_norm::weight_gradient;
use tiled_kernel::batch_norm::{factors, input_gradient, moments, moved, over_images, unbiased, ungrouped};
use tiled_kernel::{Kernel, LocalResponse, PixelNorm, Reduction};
use tiled_tensor::Tensor;

use crate::fixture::{self, Fixture, compute, each, reduce, sums};
use crate::pixels;

#[test]
fn norms_of_images_agree() {
    each("image_norm", |fixture| {
        let (x, gy) = (fixture.operand("x"), fixture.output_gradient());
        let (weight, bias) = (fixture.param("weight"), fixture.param("bias"));
        let groups = fixture.attribute("groups").as_u64();
        if fixture.attribute("training").as_bool() == Some(false) {
            return check_evaluation(fixture, &x, &gy, &weight, &bias);
        }
        let channels = weight.len();
        let groups = groups.map_or(channels, |groups| usize::try_from(groups).expect("small"));
        let group = channels / groups;
        let count = pixels(&x) * f64::from(u32::try_from(group).expect("small"));
        let grouped =
            |values: Vec<f64>| -> Vec<f64> { values.chunks(group).map(|group| group.iter().sum()).collect() };
        let gathered = grouped(sums(&reduce(Reduction::ImageMoments, &[], &[&x], x.shape())));
        let (sum, squares) = gathered.split_at(gathered.len() / 2);
        let [mean, variance] = moments(sum, squares, count).expect("memory");
        let [means, variances] = [&mean, &variance].map(|values| ungrouped(values, group).expect("memory"));
        let of = factors(&means, &variances, 1e-5, Some(&weight), Some(&bias)).expect("memory");
        let affine = Kernel::ChannelAffine { activation: None };
        fixture.check_output(compute(affine, &[&of.scale, &of.shift], &[&x], x.shape()).data());

        let dots = sums(&reduce(Reduction::ImageCentredDot, &[&means], &[&gy, &x], x.shape()));
        let (sum, dots) = dots.split_at(means.len());
        fixture.check_gradient("bias", &over_images(sum, channels).expect("memory"));
        let shares = weight_gradient(dots, &of.inverse_std).expect("memory");
        fixture.check_gradient("weight", &over_images(&shares, channels).expect("memory"));
        let by = input_gradient(sum, dots, count, &means, &of.inverse_std, &of.scale, group);
        let by = by.expect("memory");
        let gradient = compute(Kernel::ChannelCombine, &[&by.a, &by.b, &by.d], &[&gy, &x], x.shape());
        fixture.check_gradient("x", gradient.data());

        if fixture.op() == "instance_norm" {
            let update = |name: &str, new: &[f64]| {
                let old = fixture::tensor(fixture.attribute(name)).data().to_vec();
                let mean: Vec<f64> = over_images(new, channels).expect("memory");
                let mean: Vec<f64> = mean.iter().map(|sum| sum / 2.0).collect();
                moved(&old, &mean, 0.1).expect("memory")
            };
            fixture.check("running", "mean", &update("running_mean", &mean));
            let variance = unbiased(&variance, count).expect("memory");
            fixture.check("running", "var", &update("running_var", &variance));
        }
    });
}

/// An instance norm of running statistics is a batch norm of them.
fn check_evaluation(fixture: &Fixture, x: &Tensor<f64>, gy: &Tensor<f64>, weight: &[f64], bias: &[f64]) {
    let [mean, var] =
        ["running_mean", "running_var"].map(|name| fixture::tensor(fixture.attribute(name)).data().to_vec());
    let of = factors(&mean, &var, 1e-5, Some(weight), Some(bias)).expect("memory");
    let affine = Kernel::ChannelAffine { activation: None };
    fixture.check_output(compute(affine, &[&of.scale, &of.shift], &[x], x.shape()).data());
    let zeros = vec![0.0; weight.len()];
    fixture.check_gradient("x", compute(affine, &[&of.scale, &zeros], &[gy], x.shape()).data());
    fixture.check("running", "mean", &mean);
    fixture.check("running", "var", &var);
}

#[test]
fn what_is_computed_of_each_pixel_agrees() {
    each("pixel", |fixture| {
        let (x, gy) = (fixture.operand("x"), fixture.output_gradient());
        let number = |name: &str| fixture.attribute(name).as_f64().expect("a number");
        let (forward, backward) = match fixture.op() {
            "softmax" => (Kernel::Softmax { log: false }, Kernel::SoftmaxBackward { log: false }),
            "log_softmax" => (Kernel::Softmax { log: true }, Kernel::SoftmaxBackward { log: true }),
            "local_response_norm" => {
                let size = fixture.attribute("size").as_u64().expect("a number");
                let size = usize::try_from(size).expect("small");
                let local =
                    LocalResponse { size, alpha: number("alpha"), beta: number("beta"), k: number("k") };
                (Kernel::LocalResponse(local), Kernel::LocalResponseBackward(local))
            }
            op => return check_norm(fixture, PixelNorm { eps: number("eps"), centred: op == "layer_norm" }),
        };
        let output = compute(forward, &[], &[&x], x.shape());
        fixture.check_output(output.data());
        let saved = if matches!(forward, Kernel::Softmax { .. }) { &output } else { &x };
        fixture.check_gradient("x", compute(backward, &[], &[&gy, saved], x.shape()).data());
    });
}

/// The normalisation, then a weight and a bias for each channel.
fn check_norm(fixture: &Fixture, norm: PixelNorm) {
    let (x, gy) = (fixture.operand("x"), fixture.output_gradient());
    let (weight, mut bias) = (fixture.param("weight"), fixture.param("bias"));
    let zeros = vec![0.0; weight.len()];
    let has_bias = !bias.is_empty();
    bias.resize(weight.len(), 0.0);
    let normalised = compute(Kernel::PixelNorm(norm), &[], &[&x], x.shape());
    let affine = Kernel::ChannelAffine { activation: None };
    fixture.check_output(compute(affine, &[&weight, &bias], &[&normalised], x.shape()).data());

    let dots = reduce(Reduction::ChannelDot, &[], &[&gy, &normalised], x.shape());
    fixture.check_gradient("weight", &sums(&dots));
    if has_bias {
        fixture.check_gradient("bias", &sums(&reduce(Reduction::ChannelSum, &[], &[&gy], x.shape())));
    }
    let gradient = compute(affine, &[&weight, &zeros], &[&gy], x.shape());
    let gradient = compute(Kernel::PixelNormBackward(norm), &[], &[&gradient, &x], x.shape());
    fixture.check_gradient("x", gradient.data());
}

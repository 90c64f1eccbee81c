//! The arguments of every subcommand.

mod examples;
mod values;

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand};
use tiled::bytes;
use tiled::cuda::Precision;
use tiled::device::{Device, DeviceBackend, DeviceChoiceError};
use tiled::exec::{
    Decision, ElementType, ExecError, Executor, Normalization, PICTURE_LIMIT_BYTES, SinkOptions,
};
use tiled::explain::StepDetail;
use tiled::graph::{Mode, Objective, Plan, PlanOptions, Tiling};
use tiled::kernel::Backend;
use tiled::network::WeightsFrom;
use tiled::tensor::Element;

pub(crate) use self::values::{
    DTypeArg, ElementArg, FileArg, HoldArg, LossArg, ModeArg, NumbersArg, OptimizerArg, Pair, PlanLossArg,
    Planned,
};
use self::values::{pair, planned, steps};
use crate::error::CliError;
use crate::files::Files;
use crate::network;

/// Exact tiled inference and training of convolutional networks on images that do not fit in memory.
#[derive(Debug, Parser)]
#[command(name = "tiled", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Does the main job on a shipped real picture: a forward pass, a training step and a check of every bit.
    #[command(after_help = examples::DEMO)]
    Demo(DemoArgs),
    /// Says what a run will do and what memory and arithmetic it takes, without running it.
    #[command(after_help = examples::PLAN)]
    Plan(PlanCommandArgs),
    /// Computes the outputs of a network.
    #[command(after_help = examples::RUN)]
    Run(RunArgs),
    /// Computes gradients with respect to inputs and weights.
    #[command(after_help = examples::GRAD)]
    Grad(GradArgs),
    /// Trains a network on one image or batch, whole at every step.
    #[command(after_help = examples::TRAIN)]
    Train(TrainArgs),
    /// Compares random networks, sizes and plans, tiled against whole, bit for bit.
    #[command(after_help = examples::VERIFY)]
    Verify(VerifyArgs),
    /// Times built-in workloads, tiled and untiled alternately.
    #[command(after_help = examples::BENCH)]
    Bench(BenchArgs),
    /// Lists the devices that work can run on, and those that are not there with the reason.
    #[command(after_help = examples::DEVICES)]
    Devices(DevicesArgs),
    /// Builds the kernels of GPUs on any machine that has NVRTC: a run with the file needs none.
    #[command(after_help = examples::CUDA_BUILD)]
    CudaBuild(CudaBuildArgs),
    /// Lists the built-in networks, or prints one in the network format.
    #[command(after_help = examples::NET)]
    Net(NetArgs),
    /// Writes the network and the weights of an ONNX file as JSON and .safetensors.
    #[command(after_help = examples::CONVERT)]
    Convert(ConvertArgs),
}

/// How a run is planned; the same for every subcommand.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Plan options")]
pub(crate) struct PlanArgs {
    /// The most memory that the run may hold: 256MiB, 1.5GB, 4096 (bytes), `unlimited`; what can be had now where not given.
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse_budget)]
    pub(crate) memory: Option<u64>,
    /// Tiles of this height and width of the first output; with `--hold slide` strips of this width that advance
    /// by this height.
    #[arg(long, value_name = "HxW", value_parser = pair::<i64>)]
    pub(crate) tile: Option<Pair<i64>>,
    /// This many rows and columns of tiles.
    #[arg(long, value_name = "RxC", value_parser = pair::<i64>, conflicts_with = "tile")]
    pub(crate) grid: Option<Pair<i64>>,
    /// How values are held: `slide` moves windows down strips of columns and computes no row twice, `recompute` makes
    /// tiles independent, `materialise` is the untiled run.
    #[arg(long, value_enum, default_value_t = HoldArg::Auto)]
    pub(crate) hold: HoldArg,
    /// Lets values that are kept between sweeps lie in unnamed files in this folder where the memory does not hold them; decoded
    /// pictures over a quarter of the memory lie there too, or in the system's folder of temporary files where not given.
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,
    /// Runs 3×3 convolutions of stride one with 16 channels and more by Winograd's filtering: up to three times as fast, the
    /// same bits for every tiling, but other roundings than the sums. Kernels of gradients stay sums.
    #[arg(long)]
    pub(crate) winograd: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The element type of the computation.
    #[arg(long, value_enum, default_value_t = DTypeArg::F32)]
    pub(crate) dtype: DTypeArg,
    /// Threads; all cores where not given. They decide how fast a run is and what memory it takes, not what it computes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// The lanes that tiles are shared out to, of which as many run at a time as there are threads; the last bits of
    /// gradients of weights depend on them. The planner chooses where not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) lanes: Option<u16>,
    /// Whether batch norm takes the image's statistics and dropout drops; `eval` in `run`, `train` in `grad` and `train`
    /// where not given.
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeArg>,
    /// One JSON object on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which gradients are computed, and which layers train.
#[derive(Clone, Debug, Args)]
pub(crate) struct WantedArgs {
    /// The inputs, parameters and layers whose gradients are wanted alone, as in `fc,layer4*,conv1.weight`; all others are frozen, and
    /// what only they need is not computed.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Option<Vec<String>>,
    /// Layers that evaluate where others train: batch norms use their running statistics and leave them as they are, dropouts drop
    /// nothing.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) eval: Vec<String>,
}

impl WantedArgs {
    /// The objective with these wishes.
    pub(crate) fn of(&self, objective: Objective) -> Objective {
        Objective { wanted: self.only.clone(), evaluated: self.eval.clone(), ..objective }
    }
}

#[derive(Debug, Args)]
#[command(mut_arg("only", |arg| arg.requires("train")), mut_arg("eval", |arg| arg.requires("train")))]
pub(crate) struct PlanCommandArgs {
    /// A built-in network, or a .json or .onnx file.
    #[arg(long, value_name = "N")]
    pub(crate) net: String,
    /// Each input of the network: a file as `run` takes it, or a shape CxHxW or NxCxHxW.
    #[arg(long, value_name = "X|CxHxW", required = true, value_parser = PathBufValueParser::new().try_map(planned))]
    pub(crate) input: Vec<Planned>,
    /// What integers in files stand for, as in `run`; class numbers are always as they are.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) numbers: NumbersArg,
    /// Each output of the network as `run` takes it: a picture may be held whole. Nothing is written.
    #[arg(long, value_name = "Y", conflicts_with = "train")]
    pub(crate) output: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) written: OutputArgs,
    /// Plans a training step instead of inference.
    #[arg(long)]
    pub(crate) train: bool,
    /// The loss of `--train`: `sum`, `mse`, `cross-entropy`, or `none` where the caller gives gradients.
    #[arg(long, value_enum, default_value_t = PlanLossArg::Mse, requires = "train")]
    pub(crate) loss: PlanLossArg,
    /// The target of the loss as `train` takes it, or its shape.
    #[arg(long, value_name = "T|CxHxW", requires = "train", value_parser = PathBufValueParser::new().try_map(planned))]
    pub(crate) target: Option<Planned>,
    /// The optimiser of `train`, whose state is held.
    #[arg(long, value_enum, default_value_t = OptimizerArg::Sgd, requires = "train")]
    pub(crate) optimizer: OptimizerArg,
    /// The momentum of sgd, without which it has no state.
    #[arg(long, value_name = "M", default_value_t = 0.0, requires = "train", allow_negative_numbers = true)]
    pub(crate) momentum: f64,
    /// The `--save` of `train`, for which it holds a second copy of the weights; nothing is written.
    #[arg(long, value_name = "W", requires = "train")]
    pub(crate) save: Option<PathBuf>,
    /// Plans the gradients with respect to the inputs too.
    #[arg(long, requires = "train")]
    pub(crate) grad_input: bool,
    /// The steps of each sweep that `--json` lists, with every node's region, padding and window: a number or `all`;
    /// all where there are at most 4096.
    #[arg(long, value_name = "N", value_parser = steps)]
    pub(crate) steps: Option<StepDetail>,
    /// Draws tiles, halos and windows.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) wanted: WantedArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

/// The network with its weights and inputs.
#[derive(Debug, Args)]
pub(crate) struct NetworkArgs {
    /// A built-in network, or a .json or .onnx file.
    #[arg(long, value_name = "N")]
    pub(crate) net: String,
    /// Each input of the network: .npy (NCHW, CHW or HW), .png, .jpg, or .raw as FILE.raw:CxHxW, with :u8, :f64 or the
    /// like where its elements are not of --dtype.
    #[arg(long, value_name = "X", required = true, value_parser = PathBufValueParser::new().try_map(FileArg::parse))]
    pub(crate) input: Vec<FileArg>,
    /// What integers in files of inputs, targets of `mse` and gradients stand for; class numbers are always as they are.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) numbers: NumbersArg,
    #[command(flatten)]
    pub(crate) normalization: NormalizationArgs,
}

/// What is done to the values of inputs as they are read: `(scale·v − mean)/std`.
#[derive(Clone, Debug, Args)]
pub(crate) struct NormalizationArgs {
    /// What every value of an input is multiplied by, after `--numbers`.
    #[arg(long, value_name = "S", default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) scale: f64,
    /// What is then subtracted, one number or one for each channel, as in `0.485,0.456,0.406`.
    #[arg(long, value_name = "M", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) mean: Vec<f64>,
    /// What is then divided by, one number or one for each channel, as in `0.229,0.224,0.225`.
    #[arg(long, value_name = "D", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) std: Vec<f64>,
}

impl From<&NormalizationArgs> for Normalization {
    fn from(args: &NormalizationArgs) -> Self {
        Self { scale: args.scale, mean: args.mean.clone(), std: args.std.clone() }
    }
}

/// What becomes of the outputs as they are written.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArgs {
    /// The type of the elements of outputs: that of the computation where not given, in a .png u8, or u16 for 16 bits.
    #[arg(long, value_enum, value_name = "TYPE")]
    pub(crate) output_type: Option<ElementArg>,
    /// What the integers of outputs stand for: u8 and u16 hold `round(255·v)` and `round(65535·v)`, or whole numbers as they
    /// are. What does not fit is cut, and told.
    #[arg(long, value_enum, value_name = "NUMBERS", default_value_t)]
    pub(crate) output_numbers: NumbersArg,
    /// Writes for each pixel the number of the channel with the largest value, as it is: u8, or u16 where there are more than
    /// 256 channels.
    #[arg(long, conflicts_with_all = ["threshold", "output_numbers"])]
    pub(crate) argmax: bool,
    /// Writes 1 where a value is above this, else 0; in a .png white and black. NaN stays NaN in floating point and is 0 in integers.
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub(crate) threshold: Option<f64>,
}

impl OutputArgs {
    /// What is decided of the values, where not they themselves are written.
    pub(crate) fn decision(&self) -> Option<Decision> {
        if self.argmax { Some(Decision::ArgMax) } else { self.threshold.map(Decision::Above) }
    }

    /// How a tensor of so many channels is written, where a picture may take so much memory.
    pub(crate) fn sink(&self, channels: usize, limit_bytes: u64) -> SinkOptions {
        let element = self.output_type.map(ElementType::from);
        let options = SinkOptions { element, numbers: self.output_numbers.into(), limit_bytes };
        options.of_decision(self.decision(), channels)
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// The weights: a .safetensors file or `random:SEED`; those of an .onnx network where not given.
    #[arg(long, value_name = "W")]
    pub(crate) weights: Option<WeightsFrom>,
    /// Each output of the network: .npy, .raw, or .png for one or three channels.
    #[arg(long, value_name = "Y", required = true)]
    pub(crate) output: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) written: OutputArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GradArgs {
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// The weights: a .safetensors file or `random:SEED`; those of an .onnx network where not given.
    #[arg(long, value_name = "W")]
    pub(crate) weights: Option<WeightsFrom>,
    /// The gradient with respect to each output: a file as for `--input`, or `ones`.
    #[arg(
        long,
        value_name = "G",
        default_value = "ones",
        value_parser = PathBufValueParser::new().try_map(FileArg::parse)
    )]
    pub(crate) grad_output: Vec<FileArg>,
    /// Where the gradient with respect to each input goes: .npy, .raw, .png.
    #[arg(long, value_name = "GX")]
    pub(crate) grad_input: Vec<PathBuf>,
    /// Where the gradients with respect to the weights go: .safetensors.
    #[arg(long, value_name = "GW")]
    pub(crate) grad_weights: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) wanted: WantedArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// The target: for `mse` of the output's shape; for `cross-entropy` one channel of class numbers or one
    /// channel of probability per class. Class numbers come from a gray or palette .png or from .npy.
    #[arg(long, value_name = "T", value_parser = PathBufValueParser::new().try_map(FileArg::parse))]
    pub(crate) target: FileArg,
    /// The class number whose pixels `cross-entropy` leaves out, such as 255 or -100.
    #[arg(long, value_name = "CLASS", allow_negative_numbers = true)]
    pub(crate) ignore_index: Option<i64>,
    /// The weights to start with: a .safetensors file or `random:SEED`; those of an .onnx network, else `random:0`, where
    /// not given.
    #[arg(long, value_name = "W")]
    pub(crate) weights: Option<WeightsFrom>,
    /// The loss.
    #[arg(long, value_enum, default_value_t = LossArg::Mse)]
    pub(crate) loss: LossArg,
    /// Training steps, each over the whole image.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: u64,
    /// The learning rate; 0.01 for sgd and 0.001 for adamw where not given.
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub(crate) lr: Option<f64>,
    /// The optimiser.
    #[arg(long, value_enum, default_value_t = OptimizerArg::Sgd)]
    pub(crate) optimizer: OptimizerArg,
    /// The momentum of sgd.
    #[arg(long, value_name = "M", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(crate) momentum: f64,
    /// The weight decay; 0 for sgd and 0.01 for adamw where not given.
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    pub(crate) weight_decay: Option<f64>,
    /// The seed of dropout. Each step has a mask of its own, and every run begins with the first of its seed: a run that goes on from
    /// saved weights has the same ones again unless it is given another seed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Where the trained weights go: .safetensors. Where training ends early, those of the last whole step.
    #[arg(long, value_name = "W")]
    pub(crate) save: Option<PathBuf>,
    /// Where the losses go while training runs: a JSON object a line, with `step`, `loss`, `seconds` and `learning_rate`.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Where the prediction of the trained network goes: .png for one or three channels, .npy.
    #[arg(long, value_name = "FILE")]
    pub(crate) prediction: Option<PathBuf>,
    /// Where a drawing of the losses goes: .svg.
    #[arg(long, value_name = "FILE")]
    pub(crate) loss_curve: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) wanted: WantedArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The memory of the run.
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse, default_value = "256MiB")]
    pub(crate) memory: u64,
    /// Another picture than the shipped one: .jpg or .png, of three channels.
    #[arg(long, value_name = "FILE")]
    pub(crate) picture: Option<PathBuf>,
    /// The folder of the pictures that are drawn.
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    pub(crate) out: PathBuf,
    /// Threads; all cores where not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// One JSON object on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The number of cases.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cases: u64,
    /// The seed of all of them.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Runs one case alone, as a failure names it.
    #[arg(long, value_name = "CASE")]
    pub(crate) only: Option<u64>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The cases that run at a time; all cores where not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// One JSON object on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DeviceArgs {
    /// Where the work runs: `cpu`, `cuda` or `cuda:N` for an NVIDIA GPU, `cuda-sim` or `cuda-sim:MODEL` for one that this machine
    /// simulates; `tiled devices` lists them.
    #[arg(long, value_name = "DEVICE", default_value_t)]
    device: Device,
    /// What carries out convolutions of many channels in f32 on a GPU: multiply-adds (`f32`), or tensor cores on factors of 10 bits
    /// (`tf32`) or on sums of two of them (`f32x3`). The same bits for every tiling in each.
    #[arg(long, value_name = "f32|tf32|f32x3")]
    precision: Option<Precision>,
}

impl DeviceArgs {
    /// The device with its precision.
    ///
    /// # Errors
    /// Where the precision wants tensor cores that the device has not.
    pub(crate) fn choice(self) -> Result<Device, DeviceChoiceError> {
        match self.precision {
            Some(precision) => self.device.with_precision(precision),
            None => Ok(self.device),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Only the workloads whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) filter: String,
    /// Runs of each, of which the median counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    pub(crate) runs: u16,
    /// The memory of the tiled runs: a size or `unlimited`; what can be had now where not given.
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse_budget)]
    pub(crate) memory: Option<u64>,
    /// Leaves out the untiled run where it would hold more than this.
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse, default_value = "8GiB")]
    pub(crate) untiled_limit: u64,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Threads; all cores where not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// One JSON object on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// One JSON object on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CudaBuildArgs {
    /// Each architecture to build for, as `sm_90`.
    #[arg(long, value_name = "SM", required = true)]
    pub(crate) arch: Vec<String>,
    /// Where the kernels go; a run finds them by the variable `TILED_CUDA_KERNELS`.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct NetArgs {
    /// A built-in network, or a .json or .onnx file; all that are built in where not given.
    #[arg(value_name = "N")]
    pub(crate) net: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// The model: .onnx.
    #[arg(value_name = "MODEL")]
    pub(crate) model: PathBuf,
    /// Where the network goes: .json.
    #[arg(long, value_name = "N")]
    pub(crate) net: PathBuf,
    /// Where the weights go: .safetensors.
    #[arg(long, value_name = "W")]
    pub(crate) weights: PathBuf,
    /// The element type of the weights.
    #[arg(long, value_enum, default_value_t = DTypeArg::F32)]
    pub(crate) dtype: DTypeArg,
    /// Makes one convolution of those of the same value that are added, as in RepVGG and MobileOne: for inference, with other
    /// roundings.
    #[arg(long)]
    pub(crate) merge: bool,
}

impl NetworkArgs {
    /// Adds the files that are read for a network with weights.
    pub(crate) fn reads<'a>(&'a self, files: Files<'a>, weights: Option<&'a WeightsFrom>) -> Files<'a> {
        let weights = match weights {
            Some(WeightsFrom::File(path)) => Some(path.as_path()),
            Some(WeightsFrom::Random(_)) | None => None,
        };
        let files = files.reads("net", network::file(&self.net)).reads("weights", weights);
        files.reads("input", self.input.iter().map(|file| file.path.as_path()))
    }
}

impl PlanArgs {
    /// The options of a planner for a backend; `resident_bytes` is what is held beside the run.
    ///
    /// # Errors
    /// Where the device has less than the run may take, and where an untiled run is given tiles.
    pub(crate) fn options(
        &self,
        backend: &DeviceBackend,
        resident_bytes: u64,
    ) -> Result<PlanOptions, CliError> {
        backend.check_budget(self.memory)?;
        let tiling = match (self.tile, self.grid) {
            (Some(Pair(tile)), _) => Tiling::Tile(tile),
            (None, Some(Pair(grid))) => Tiling::Grid(grid),
            (None, None) => Tiling::Auto,
        };
        if matches!(self.hold, HoldArg::Materialise) && tiling != Tiling::Auto {
            let option = if self.tile.is_some() { "tile" } else { "grid" };
            return Err(CliError::Untiled { option });
        }
        Ok(PlanOptions {
            memory_bytes: self.memory.or(backend.memory_bytes()),
            tiling,
            hold: self.hold.into(),
            lanes: self.lanes.map(usize::from),
            parallelism: self.threads(),
            resident_bytes,
            temporary_files: self.scratch.is_some(),
            winograd: self.winograd,
            ..PlanOptions::default()
        })
    }

    /// An executor for a plan of these options.
    pub(crate) fn executor<'b, T: Element>(
        &self,
        plan: Plan,
        backend: &'b dyn Backend<T>,
    ) -> Result<Executor<'b, T>, ExecError> {
        match &self.scratch {
            Some(folder) => Executor::with_folder(plan, backend, self.threads(), folder),
            None => Executor::new(plan, backend, self.threads()),
        }
    }

    pub(crate) fn threads(&self) -> usize {
        threads(self.threads)
    }

    /// The memory that pictures may take, decoded: a quarter of the run's.
    pub(crate) fn picture_bytes(&self) -> u64 {
        self.memory.map_or(PICTURE_LIMIT_BYTES, |bytes| (bytes / 4).min(PICTURE_LIMIT_BYTES))
    }

    pub(crate) fn mode(&self, default: Mode) -> Mode {
        self.mode.map_or(default, |mode| match mode {
            ModeArg::Train => Mode::Train,
            ModeArg::Eval => Mode::Eval,
        })
    }
}

/// The threads asked for, or all cores.
pub(crate) fn threads(asked: Option<u16>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Arguments;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }
}

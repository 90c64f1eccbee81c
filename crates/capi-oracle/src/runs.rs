//! Plans, executors and trainers, with memory and callbacks of every mood.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use tiled_capi::*;

use super::State;
use super::callbacks::{self, Heard};
use super::header::{Extensible, size_of_u32};
use super::memory::{Role, SECOND};
use super::shadow::Planned;

/// The tensors of a run, in the structs that the library takes.
struct Tensors {
    inputs: Vec<tiled_source>,
    target: Option<tiled_source>,
    grad_outputs: Vec<tiled_source>,
    outputs: Vec<tiled_sink>,
    grad_inputs: Vec<tiled_sink>,
    progress: Option<tiled_progress>,
}

impl Tensors {
    fn io(&self) -> tiled_io {
        let optional =
            |target: &Option<tiled_source>| target.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        tiled_io {
            inputs: self.inputs.as_ptr(),
            input_count: self.inputs.len(),
            target: optional(&self.target),
            grad_outputs: self.grad_outputs.as_ptr(),
            grad_output_count: self.grad_outputs.len(),
            outputs: self.outputs.as_ptr(),
            output_count: self.outputs.len(),
            grad_inputs: self.grad_inputs.as_ptr(),
            grad_input_count: self.grad_inputs.len(),
            progress: self.progress.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
            ..Extensible::initial()
        }
    }

    /// The memory that a run may write.
    fn written(&self) -> Vec<tiled_tensor> {
        let sinks = self.outputs.iter().chain(&self.grad_inputs);
        sinks.filter(|sink| sink.write.is_none()).map(|sink| sink.tensor).collect()
    }

    fn has_callbacks(&self) -> bool {
        let sources = self.inputs.iter().chain(&self.target).chain(&self.grad_outputs);
        let sinks = self.outputs.iter().chain(&self.grad_inputs);
        sources.into_iter().any(|source| source.read.is_some())
            || sinks.into_iter().any(|sink| sink.write.is_some())
    }

    fn hears_ends(&self) -> u32 {
        let sinks = self.outputs.iter().chain(&self.grad_inputs);
        u32::try_from(sinks.filter(|sink| sink.end.is_some()).count()).unwrap_or(0)
    }
}

impl State<'_> {
    fn objective(&mut self) -> tiled_objective {
        let bytes = &mut self.bytes;
        let loss = i32::from(bytes.below(5));
        let grads =
            [bytes.either(), bytes.either()].map(|wanted| i32::from(wanted && loss != TILED_LOSS_NONE));
        let mut objective = tiled_objective {
            mode: i32::from(bytes.below(2)),
            loss,
            outputs: i32::from(loss == TILED_LOSS_NONE || bytes.either()),
            grad_inputs: grads[0],
            grad_params: grads[1],
            target_channels: bytes.from(1, 2),
            seed: u64::from(bytes.byte()),
            ..Extensible::initial()
        };
        if bytes.once_in(24) {
            let odd = bytes.choose(&[-1, 7, i32::MIN]);
            *(if bytes.either() { &mut objective.mode } else { &mut objective.loss }) = odd;
            self.flaws.is_wrong = true;
        }
        objective
    }

    fn plan_options(&mut self) -> tiled_plan_options {
        let bytes = &mut self.bytes;
        let mut options = tiled_plan_options {
            hold: i32::from(bytes.below(4)),
            lanes: u32::from(bytes.below(4)),
            parallelism: u32::from(bytes.below(3)),
            winograd: i32::from(bytes.once_in(4)),
            ..Extensible::initial()
        };
        match bytes.below(8) {
            0 => options.tile = [bytes.from(1, 9), bytes.from(1, 9)],
            1 => options.grid = [bytes.from(1, 4), bytes.from(1, 4)],
            2 => options.memory_bytes = u64::from(bytes.byte()) << 12,
            3 => {
                options.resident_bytes = u64::from(bytes.byte()) << 56;
                options.memory_bytes = bytes.choose(&[0, TILED_MEMORY_UNLIMITED]);
            }
            4 => (options.tile, options.grid) = ([bytes.number(), 1], [0, bytes.number().wrapping_sub(1)]),
            5 if bytes.once_in(4) => {
                options.hold = bytes.choose(&[-1, 4, i32::MAX]);
                self.flaws.is_wrong = true;
            }
            6 if bytes.once_in(4) => {
                options.lanes = u32::MAX;
                self.flaws.is_wrong = true;
            }
            _ => {}
        }
        options
    }

    pub(super) fn make_plan(&mut self) {
        let (engine, graph, dtype) =
            (self.handle::<tiled_engine>(), self.handle::<tiled_graph>(), self.dtype());
        let inputs = self.input_shapes(graph);
        let (objective, options) = (self.objective(), self.plan_options());
        let mut count = inputs.len();
        if self.bytes.once_in(32) {
            count = self.bytes.choose(&[0, 1 << 62, usize::MAX]);
            self.flaws.is_wrong = true;
        }
        let shapes = inputs.as_ptr().cast::<i64>();
        let shapes = if self.bytes.once_in(48) && count > 0 { self.null() } else { shapes.cast_mut() };
        let outputs = self.output_shapes(graph, &inputs);
        let planned = Planned { dtype, inputs: inputs.clone(), outputs, objective };
        let (objective, options) = (&raw const objective, &raw const options);
        // SAFETY: pointers are NULL or to live values, and a count that is not that of the shapes is told before
        self.keep(Some(planned), |out| unsafe {
            tiled_plan_new(engine, graph, dtype, shapes, count, objective, options, out)
        });
    }

    pub(super) fn make_executor(&mut self) {
        let (engine, plan) = (self.handle::<tiled_engine>(), self.handle::<tiled_plan>());
        let planned = self.planned(plan);
        // SAFETY: the place for the handle is NULL or live
        self.keep(planned, |out| unsafe { tiled_executor_new(engine, plan, out) });
    }

    pub(super) fn make_trainer(&mut self) {
        let (engine, plan) = (self.handle::<tiled_engine>(), self.handle::<tiled_plan>());
        let planned = self.planned(plan);
        let bytes = &mut self.bytes;
        let mut optimizer = tiled_optimizer {
            kind: 1 + i32::from(bytes.below(2)),
            learning_rate: f64::from(bytes.below(4)) / 64.0,
            momentum: f64::from(bytes.below(2)) / 2.0,
            weight_decay: f64::from(bytes.below(2)) / 8.0,
            ..Extensible::initial()
        };
        if bytes.once_in(12) {
            let odd = bytes.choose(&[f64::NAN, f64::INFINITY, -1.0]);
            match bytes.below(5) {
                0 => optimizer.learning_rate = odd,
                1 => optimizer.eps = odd,
                2 => optimizer.betas = [odd, 0.5],
                3 => optimizer.nesterov = 1,
                _ => {
                    optimizer.kind = bytes.choose(&[0, 3, -1]);
                    self.flaws.is_wrong = true;
                }
            }
        }
        // SAFETY: as in `make_executor`
        self.keep(planned, |out| unsafe { tiled_trainer_new(engine, plan, &raw const optimizer, out) });
    }

    /// A source of this shape: memory, or a callback.
    fn source(&mut self, heard: &Heard, dtype: i32, shape: [i64; 4], word: usize) -> tiled_source {
        let mut source: tiled_source = Extensible::initial();
        if self.bytes.either() {
            let stored = self.stored_dtype(dtype);
            source.tensor = self.tensor(Role::Read, stored, shape, word);
            source.numbers = i32::from(self.bytes.once_in(4));
            return source;
        }
        source.tensor = tiled_tensor { dtype, shape, ..Extensible::initial() };
        source.is_serial = i32::from(self.bytes.below(2));
        source.read = Some(callbacks::read);
        source.user = heard.user();
        source
    }

    /// A sink of this shape: memory, or, for the first output, a callback.
    fn sink(&mut self, heard: Option<&Heard>, dtype: i32, shape: [i64; 4], word: usize) -> tiled_sink {
        let mut sink: tiled_sink = Extensible::initial();
        let Some(heard) = heard.filter(|_| self.bytes.either()) else {
            let stored = self.stored_dtype(dtype);
            sink.tensor = self.tensor(Role::Written, stored, shape, word);
            sink.numbers = i32::from(self.bytes.once_in(4));
            return sink;
        };
        sink.tensor = tiled_tensor { dtype, shape, ..Extensible::initial() };
        sink.is_serial = i32::from(self.bytes.below(2));
        sink.write = Some(callbacks::write);
        sink.end = Some(callbacks::end);
        sink.user = heard.user();
        sink
    }

    fn tensors(&mut self, heard: &Heard, planned: &Planned) -> Tensors {
        let (dtype, objective) = (planned.dtype, planned.objective);
        let is_other = self.bytes.once_in(24);
        let dtype = if is_other { TILED_DTYPE_F32 + TILED_DTYPE_F64 - dtype } else { dtype };
        let each = |shapes: &[[i64; 4]], wanted: bool| if wanted { shapes.to_vec() } else { Vec::new() };
        let inputs = each(&planned.inputs, !self.bytes.once_in(32));
        let grads = each(&planned.outputs, objective.loss == TILED_LOSS_GRAD_OUTPUT);
        let outputs = each(&planned.outputs, objective.outputs != 0 && !self.bytes.once_in(8));
        let grad_inputs = each(&planned.inputs, objective.grad_inputs != 0 && !self.bytes.once_in(8));
        let mut target =
            planned.outputs.first().copied().filter(|_| objective.loss >= TILED_LOSS_MEAN_SQUARED_ERROR);
        if let Some(shape) = target.as_mut().filter(|_| objective.loss == TILED_LOSS_CROSS_ENTROPY) {
            shape[1] = objective.target_channels;
        }
        if self.bytes.once_in(32) {
            target = Some([1, 2, 3, 4]);
        }
        let tensors = Tensors {
            inputs: inputs.iter().map(|shape| self.source(heard, dtype, *shape, 0)).collect(),
            target: target.map(|shape| self.source(heard, dtype, shape, 11)),
            grad_outputs: grads.iter().map(|shape| self.source(heard, dtype, *shape, 5)).collect(),
            outputs: outputs
                .iter()
                .enumerate()
                .map(|(place, shape)| self.sink((place == 0).then_some(heard), dtype, *shape, place * 512))
                .collect(),
            grad_inputs: grad_inputs
                .iter()
                .enumerate()
                .map(|(place, shape)| self.sink(None, dtype, *shape, 2048 + place * 1024))
                .collect(),
            progress: self.bytes.either().then(|| tiled_progress {
                step: Some(callbacks::step),
                user: heard.user(),
                ..Extensible::initial()
            }),
        };
        // memory of another type is converted, callbacks have that of the computation
        self.flaws.is_wrong |= is_other && tensors.has_callbacks();
        tensors
    }

    pub(super) fn run(&mut self) {
        let (executor, weights) = (self.handle::<tiled_executor>(), self.handle::<tiled_weights>());
        let Some(planned) = self.planned(executor) else {
            let io: tiled_io = Extensible::initial();
            // SAFETY: the structs are live
            self.judged(|| unsafe { tiled_executor_run(executor, weights, &raw const io, null_mut()) });
            return;
        };
        let heard = Heard::new(&planned, executor, weights);
        // SAFETY: the structs and what they refer to are live, and tensors lie within the arena
        self.run_with(&planned, &heard, |io, report| unsafe {
            tiled_executor_run(executor, weights, io, report)
        });
    }

    pub(super) fn step_trainer(&mut self) {
        let trainer = self.handle::<tiled_trainer>();
        if self.bytes.once_in(8) {
            let rate = self.bytes.choose(&[0.0, 0.5, -1.0, f64::NAN, f64::INFINITY]);
            self.flaws.is_wrong = !(rate.is_finite() && rate >= 0.0);
            self.judged(|| tiled_trainer_set_learning_rate(trainer, rate));
            return;
        }
        let weights = self.handle::<tiled_weights>();
        let Some(planned) = self.planned(trainer) else {
            let io: tiled_io = Extensible::initial();
            // SAFETY: the structs are live
            self.judged(|| unsafe { tiled_trainer_step(trainer, weights, &raw const io, null_mut()) });
            return;
        };
        let heard = Heard::new(&planned, null_mut(), weights);
        let before = parameter(weights);
        // SAFETY: as in `run`
        let status = self.run_with(&planned, &heard, |io, report| unsafe {
            tiled_trainer_step(trainer, weights, io, report)
        });
        if status != TILED_STATUS_OK {
            assert_eq!(before, parameter(weights), "a step that failed changed a parameter");
        }
    }

    #[track_caller]
    fn run_with(
        &mut self,
        planned: &Planned,
        heard: &Heard,
        run: impl FnOnce(*const tiled_io, *mut tiled_report) -> tiled_status,
    ) -> tiled_status {
        let tensors = self.tensors(heard, planned);
        if self.bytes.once_in(6) {
            heard.until_failure.store(i32::from(self.bytes.below(6)), Ordering::SeqCst);
        }
        if self.bytes.once_in(6) {
            heard.until_cancel.store(i32::from(self.bytes.below(6)), Ordering::SeqCst);
        }
        let (io, written) = (tensors.io(), tensors.written());
        let mut report = tiled_report { has_loss: -9, loss: -9.0, ..Extensible::initial() };
        if self.bytes.once_in(24) {
            report.struct_size = self.bytes.choose(&[0, 4, 23, 4097, u32::MAX]);
            self.flaws.is_wrong = true;
        }
        let place = if self.bytes.either() { null_mut() } else { &raw mut report };
        self.flaws.is_wrong &= !(place.is_null() && report.struct_size != size_of_u32::<tiled_report>());
        let status = self.judged_writing(&written, || run(&raw const io, place));

        let heard_ends = [0, 1].map(|kind| heard.ends[kind].load(Ordering::SeqCst));
        let [failures, cancels] = [&heard.failures, &heard.cancels].map(|count| count.load(Ordering::SeqCst));
        let wrong = heard.wrong.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        assert_eq!(wrong, None, "what a callback got is wrong");
        assert!(
            heard_ends[0] + heard_ends[1] <= tensors.hears_ends(),
            "an end was heard twice: {heard_ends:?}"
        );
        assert!(status != TILED_STATUS_CALLBACK || failures > 0, "no callback failed");
        assert!(status != TILED_STATUS_CANCELLED || cancels > 0, "nobody cancelled");
        if status == TILED_STATUS_OK {
            assert_eq!(failures, 0, "a callback failed, and the run did not");
            assert_eq!(heard_ends, [0, tensors.hears_ends()], "the ends of a run that succeeded");
            assert!(heard_ends[1] == 0 || heard.is_all_written(), "elements were left out");
            assert!(place.is_null() || report.has_loss != -9, "no report");
        } else {
            assert_eq!(
                (report.has_loss, report.loss.to_bits()),
                (-9, (-9.0_f64).to_bits()),
                "a report of no run"
            );
        }
        status
    }

    /// A gradient of the latest run or step.
    pub(super) fn read_gradient(&mut self) {
        let (index, dtype) = (usize::from(self.bytes.below(6)), self.dtype());
        let count = usize::from(self.bytes.choose(&[9_u8, 1, 0, 18, 27, 36, 4, 2]));
        let to = self.arena.writable().wrapping_byte_add(SECOND * 8);
        let to = if self.bytes.once_in(32) { self.null() } else { to };
        let written = [super::network::flat(dtype, to, count)];
        if self.bytes.either() {
            let executor = self.handle::<tiled_executor>();
            // SAFETY: there is room for the elements, or the pointer is NULL
            self.judged_writing(&written, || unsafe {
                tiled_executor_gradient(executor, index, dtype, to, count)
            });
        } else {
            let trainer = self.handle::<tiled_trainer>();
            // SAFETY: as above
            self.judged_writing(&written, || unsafe {
                tiled_trainer_gradient(trainer, index, dtype, to, count)
            });
        }
    }
}

/// The elements of the first parameter, where there is one that is small; makes no judged call.
fn parameter(weights: *mut tiled_weights) -> Vec<u64> {
    let mut values = vec![0_u64; 64];
    for dtype in [TILED_DTYPE_F32, TILED_DTYPE_F64] {
        let (mut shape, mut rank) = ([0_i64; 4], 0_usize);
        // SAFETY: there is room for what is asked for
        unsafe {
            if tiled_weights_shape(weights, 0, shape.as_mut_ptr(), &raw mut rank) != TILED_STATUS_OK {
                return Vec::new();
            }
            let count = usize::try_from(shape.iter().product::<i64>()).unwrap_or(usize::MAX);
            if count > values.len() {
                return Vec::new();
            }
            let to = values.as_mut_ptr().cast::<c_void>();
            if tiled_weights_get(weights, 0, dtype, to, count) == TILED_STATUS_OK {
                return values;
            }
        }
    }
    Vec::new()
}

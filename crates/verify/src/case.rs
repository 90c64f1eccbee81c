//! One random case: the untiled run, the tiled runs, and what must agree.

use tiled::graph::program::Finaliser;
use tiled::graph::{Hold, Id, Objective, Plan, PlanError, PlanOptions, Planner};
use tiled::kernel::{Backend, Reduction};
use tiled::tensor::{Element, Tensor};

use super::Subject;
use super::draw::Draw;
use super::magnitude::Magnitudes;
use super::network::{Network, network};
use super::run::{Outcome, Tensors, run};
use super::setting::{Drawn, objective, options};

/// What came of one case.
#[derive(Clone, Debug, Default)]
pub(super) struct CaseReport {
    /// The tiles or steps of the plan; zero where there was none.
    pub(super) tiles: u64,
    pub(super) compared: u64,
    pub(super) output_mismatches: u64,
    pub(super) input_grad_mismatches: u64,
    pub(super) weight_grad_failures: u64,
    /// What is wrong, and the line that reproduces it.
    pub(super) failure: Option<String>,
}

/// Draws cases until one has more than one tile, and checks it.
pub(super) fn check<T: Element>(draw: &mut Draw, label: &str, subject: Subject<'_, T>) -> CaseReport {
    let backend = subject.backend;
    for _ in 0..NETWORKS {
        let network = network(draw);
        let objective = objective(draw, &network);
        let planner = Planner::new(&network.graph, &network.shapes, &objective, backend);
        for _ in 0..PLANS {
            let drawn = options(draw, &network, &objective);
            let case = Case { network: &network, objective: &objective, drawn: &drawn, label };
            match case.plans(&planner) {
                Err(problem) => {
                    return CaseReport { failure: Some(case.line(&problem)), ..CaseReport::default() };
                }
                Ok([_, tiled]) if tiled.tiles() <= 1 => {}
                Ok([whole, tiled]) => return case.compare(&whole, &tiled, subject, draw),
            }
        }
    }
    let failure = Some(format!("{label}: no plan of {NETWORKS} networks has more than one tile"));
    CaseReport { failure, ..CaseReport::default() }
}

/// How often a network and its options are drawn again.
const NETWORKS: usize = 50;
const PLANS: usize = 3;

struct Case<'a> {
    network: &'a Network,
    objective: &'a Objective,
    drawn: &'a Drawn,
    label: &'a str,
}

impl Case<'_> {
    /// The untiled plan and the one under test.
    fn plans<T: Element>(&self, planner: &Planner<'_, T>) -> Result<[Plan; 2], String> {
        let winograd = self.drawn.options.winograd;
        let whole = PlanOptions { hold: Hold::Materialise, winograd, ..PlanOptions::default() };
        let whole = planner.plan(&whole).map_err(|error| format!("untiled plan: {error}"))?;
        let mut options = self.drawn.options.clone();
        let error = |error: PlanError| format!("plan: {error}");
        if let Some(fraction) = self.drawn.budget {
            let smallest = match planner.plan(&PlanOptions { memory_bytes: Some(0), ..options.clone() }) {
                Err(PlanError::BudgetTooSmall { smallest, .. }) => smallest,
                Err(other) => return Err(error(other)),
                // all that is computed lies in the caller's memory
                Ok(plan) if plan.peak_bytes() == 0 => 0,
                Ok(plan) => return Err(format!("plan: {} bytes exceed a budget of none", plan.peak_bytes())),
            };
            options.memory_bytes = Some(between(smallest, whole.peak_bytes(), fraction));
        }
        let tiled = planner.plan(&options).map_err(error)?;
        match options.memory_bytes {
            Some(budget) if tiled.peak_bytes() > budget => {
                Err(format!("plan: {} bytes exceed the budget of {budget}", tiled.peak_bytes()))
            }
            _ => Ok([whole, tiled]),
        }
    }

    fn compare<T: Element>(
        &self,
        whole: &Plan,
        tiled: &Plan,
        Subject { backend, host }: Subject<'_, T>,
        draw: &mut Draw,
    ) -> CaseReport {
        let tensors = Tensors::<T>::new(draw, self.network, self.objective);
        let times = if draw.chance(25) { 2 } else { 1 };
        let run = |plan: &Plan, backend: &dyn Backend<T>, threads: usize, times: usize| {
            run(plan, &tensors, self.objective, backend, threads, times)
        };
        let outcomes = run(whole, backend, 1, 1).and_then(|untiled| {
            let magnitudes = run(whole, &Magnitudes(host), 1, 1)?;
            Ok([untiled, magnitudes, run(tiled, backend, 1, 1)?, run(tiled, backend, 2, times)?])
        });
        let mut report = CaseReport { tiles: tiled.tiles(), ..CaseReport::default() };
        let mut problems = Vec::new();
        match outcomes {
            Err(error) => problems.push(format!("run: {error}")),
            Ok([untiled, magnitudes, one, two]) => {
                let mut check = Check { case: self, report: &mut report, problems: &mut problems };
                check.finite(&untiled);
                check.same_bits(&untiled, &one);
                check.same_bits(&untiled, &two);
                check.gradients(whole, [&untiled, &magnitudes, &one, &two]);
            }
        }
        report.failure = (!problems.is_empty()).then(|| self.line(&problems.join("; ")));
        report
    }

    /// The line of a failure: what is wrong, and everything that reproduces it.
    fn line(&self, problem: &str) -> String {
        let graph = &self.network.graph;
        let inputs = &self.network.shapes.all()[..graph.inputs().len()];
        let json = graph.to_json().split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
        format!(
            "{}: {problem} | inputs {inputs:?} | {:?} | {:?} | budget {:?} | {json}",
            self.label, self.objective, self.drawn.options, self.drawn.budget
        )
    }
}

struct Check<'a> {
    case: &'a Case<'a>,
    report: &'a mut CaseReport,
    problems: &'a mut Vec<String>,
}

impl Check<'_> {
    /// Inputs are small and operators tame, so nothing may overflow.
    fn finite<T: Element>(&mut self, whole: &Outcome<T>) {
        let tensors = whole.outputs.iter().chain(&whole.grad_inputs);
        let wild = tensors.flat_map(Tensor::data).filter(|value| !value.to_f64().is_finite()).count();
        if wild > 0 {
            self.problems.push(format!("{wild} values of the untiled run are not finite"));
        }
    }

    /// Outputs, input gradients, the loss and running statistics.
    fn same_bits<T: Element>(&mut self, whole: &Outcome<T>, tiled: &Outcome<T>) {
        let graph = &self.case.network.graph;
        let outputs: Vec<&str> = graph.outputs().iter().map(|value| graph.name(*value)).collect();
        let wanted = whole.input_grads.iter();
        let inputs: Vec<&str> = wanted.map(|place| graph.inputs()[*place].name.as_str()).collect();
        self.report.output_mismatches += self.tensors("output", &outputs, &whole.outputs, &tiled.outputs);
        self.report.input_grad_mismatches +=
            self.tensors("input gradient", &inputs, &whole.grad_inputs, &tiled.grad_inputs);
        let mut others = u64::from(whole.loss.map(f64::to_bits) != tiled.loss.map(f64::to_bits));
        if others > 0 {
            self.problems.push(format!("loss is {:?}, untiled {:?}", tiled.loss, whole.loss));
        }
        let pairs = whole.parameters.tensors().iter().zip(tiled.parameters.tensors()).enumerate();
        // a run changes nothing that it lets go of
        for (_, (a, b)) in pairs.filter(|(at, _)| !tiled.parameters.is_released(*at)) {
            let wrong = differing(&a.data, &b.data);
            if wrong > 0 {
                self.problems.push(format!("`{}`: {wrong} values differ after the run", a.name));
            }
            others += wrong;
        }
        self.report.compared += u64::from(whole.loss.is_some());
        self.report.output_mismatches += others;
    }

    fn tensors<T: Element>(
        &mut self,
        what: &str,
        names: &[&str],
        whole: &[Tensor<T>],
        tiled: &[Tensor<T>],
    ) -> u64 {
        let mut total = 0;
        for ((name, a), b) in names.iter().zip(whole).zip(tiled) {
            self.report.compared += a.data().len() as u64;
            let wrong = differing(a.data(), b.data());
            if wrong > 0 {
                let first =
                    a.data().iter().zip(b.data()).position(|(a, b)| a.to_bits_u64() != b.to_bits_u64());
                let place = first.unwrap_or(0);
                self.problems.push(format!(
                    "{what} `{name}` of {:?}: {wrong} of {} differ, first {} ({} untiled, {} tiled)",
                    a.shape(),
                    a.data().len(),
                    place,
                    a.data()[place],
                    b.data()[place]
                ));
            }
            total += wrong;
        }
        total
    }

    /// Gradients of parameters: the same bits for one thread and two, and near the untiled ones.
    fn gradients<T: Element>(&mut self, plan: &Plan, [whole, magnitudes, one, two]: [&Outcome<T>; 4]) {
        let tensors = whole.parameters.tensors();
        for (param, tensor) in tensors.iter().enumerate() {
            let gradient = |outcome: &Outcome<T>| outcome.gradients[param].clone().unwrap_or_default();
            let (whole, sizes, one, two) =
                (gradient(whole), gradient(magnitudes), gradient(one), gradient(two));
            self.report.compared += whole.len() as u64;
            let unstable = differing(&one, &two);
            if unstable > 0 {
                self.problems.push(format!("`{}`: {unstable} differ between 1 and 2 threads", tensor.name));
            }
            let factor = terms(plan, param).map_or(0.0, allowed);
            let bound = |place: usize| match factor {
                0.0 => 0.0,
                factor => factor * T::EPSILON.to_f64() * sizes[place].to_f64(),
            };
            let far = (0..whole.len())
                .filter(|place| {
                    // not a number is outside of every bound
                    let distance = (whole[*place].to_f64() - one[*place].to_f64()).abs();
                    distance.is_nan() || distance > bound(*place)
                })
                .collect::<Vec<usize>>();
            if let Some(&place) = far.first() {
                self.problems.push(format!(
                    "`{}`: gradient {place} is {} tiled, {} untiled, allowed difference {:e}",
                    tensor.name,
                    one[place],
                    whole[place],
                    bound(place)
                ));
            }
            self.report.weight_grad_failures += unstable + far.len() as u64;
        }
    }
}

/// The terms of each sum that a weight gradient is, over all nodes that read the weight; `None` where the sum is exact.
fn terms(plan: &Plan, param: usize) -> Option<u64> {
    let shares = plan.program.finalisers.iter().filter_map(|(_, finaliser)| match finaliser {
        Finaliser::ParamGrad { reduction, param: of } if of.index() == param => Some(*reduction),
        Finaliser::SharedGrad { param: of, share, .. } if of.index() == param => Some(share.reduction()),
        _ => None,
    });
    let terms = shares.filter_map(|reduction| {
        let reduction = &plan.program.reductions[reduction];
        let node = &plan.program.nodes[reduction.node];
        let pixels: u64 = node.extents.iter().map(|extent| extent.unsigned_abs()).product();
        matches!(reduction.reduction, Reduction::ConvWeight(_)).then(|| node.batch as u64 * pixels)
    });
    // the sum over several nodes adds a rounding for each
    terms.reduce(|sum, more| sum + more + 1)
}

/// How far two sums of the same `n` products in different orders may lie apart, in `ε·Σ|products|`.
///
/// Each errs by at most `γ_n·Σ|·|`, `γ_n = n·u/(1 − n·u)`, `u = ε/2` (Higham, *Accuracy and Stability of Numerical
/// Algorithms*, 2002, section 3.1), so that they differ by at most about `n·ε·Σ|·|`. A tighter bound that grows as `√n`
/// (Higham, Mary, "A new approach to probabilistic rounding error analysis", 2019) does not hold here: behind a global
/// pooling all terms are equal, and their rounding errors too.
fn allowed(terms: u64) -> f64 {
    // two more: the bound itself is rounded
    f64::from(u32::try_from(terms).unwrap_or(u32::MAX)) + 2.0
}

fn differing<T: Element>(a: &[T], b: &[T]) -> u64 {
    let pairs = a.iter().zip(b).filter(|(a, b)| a.to_bits_u64() != b.to_bits_u64()).count();
    (pairs + a.len().abs_diff(b.len())) as u64
}

/// The budget at a fraction of the way from the smallest to the untiled peak.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the bytes of a small case, scaled by a fraction of one"
)]
fn between(smallest: u64, untiled: u64, fraction: f64) -> u64 {
    smallest + (untiled.saturating_sub(smallest) as f64 * fraction) as u64
}

//! Learning rates over steps.

/// The learning rate of each step, counted from zero, as PyTorch's schedulers give it.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// `rate·γ^⌊step/size⌋`: `StepLR`.
    Step {
        /// The steps between two changes.
        size: u64,
        /// γ.
        gamma: f64,
    },
    /// `least + (rate − least)·(1 + cos(π·step/steps))/2`, at its end the least: `CosineAnnealingLR` until then.
    Cosine {
        /// The steps to the least rate.
        steps: u64,
        /// The least rate.
        least: f64,
    },
    /// From a share of the rate to all of it in equal parts, then another schedule from its start: `LinearLR` before it.
    WarmUp {
        /// The steps.
        steps: u64,
        /// The share to begin with.
        from: f64,
        /// What follows; the rate itself where nothing does.
        then: Option<Box<Schedule>>,
    },
    /// From `rate/25` up to the rate in 30 % of the steps, then down to 1/10 000 of where it began, both by a cosine: `OneCycleLR` with its
    /// defaults, whose largest rate this is.
    OneCycle {
        /// The steps, at least 2.
        steps: u64,
    },
}

impl Schedule {
    /// The learning rate of a step.
    ///
    /// ```
    /// use tiled_autograd::train::Schedule;
    /// let schedule = Schedule::Step { size: 10, gamma: 0.5 };
    /// assert_eq!([0, 9, 10, 25].map(|step| schedule.rate(0.8, step)), [0.8, 0.8, 0.4, 0.2]);
    /// ```
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
    pub fn rate(&self, rate: f64, step: u64) -> f64 {
        match self {
            Self::Step { size, gamma } => {
                rate * gamma.powi(i32::try_from(step / (*size).max(1)).unwrap_or(i32::MAX))
            }
            Self::Cosine { steps, least } => {
                let share = step.min(*steps) as f64 / (*steps).max(1) as f64;
                between(rate, *least, share)
            }
            Self::WarmUp { steps, from, .. } if step < *steps => {
                rate * (from + (1.0 - from) * step as f64 / *steps as f64)
            }
            Self::WarmUp { steps, then, .. } => {
                then.as_ref().map_or(rate, |then| then.rate(rate, step - steps))
            }
            Self::OneCycle { steps } => {
                let last = (*steps).max(2) as f64;
                // the first part ends at step 0.3·steps − 1, the second at steps − 1
                let (top, end) = (0.3 * last - 1.0, last - 1.0);
                let at = (step as f64).min(end);
                let first = rate / 25.0;
                if at <= top {
                    between(first, rate, at / top)
                } else {
                    between(rate, first / 1e4, (at - top) / (end - top))
                }
            }
        }
    }
}

/// From a value to another along half a cosine.
fn between(from: f64, to: f64, share: f64) -> f64 {
    to + (from - to) * (1.0 + (std::f64::consts::PI * share).cos()) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn schedules_have_the_rates_of_torch() {
        let cosine = Schedule::Cosine { steps: 10, least: 0.1 };
        assert!(
            near(cosine.rate(1.0, 0), 1.0)
                && near(cosine.rate(1.0, 5), 0.55)
                && near(cosine.rate(1.0, 99), 0.1)
        );
        let warm = Schedule::WarmUp { steps: 4, from: 0.25, then: Some(Box::new(cosine)) };
        assert!(
            near(warm.rate(1.0, 0), 0.25) && near(warm.rate(1.0, 2), 0.625) && near(warm.rate(1.0, 4), 1.0)
        );
        assert!(near(warm.rate(1.0, 9), 0.55));
        // torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1, total_steps=10)
        let cycle = Schedule::OneCycle { steps: 10 };
        let expected =
            [0.04, 0.52, 1.0, 0.950_484_632_013_473_7, 0.811_745_653_949_763_1, 0.611_262_021_936_289_3];
        for (step, expected) in expected.into_iter().enumerate() {
            assert!(near(cycle.rate(1.0, step as u64), expected), "{step}: {}", cycle.rate(1.0, step as u64));
        }
        assert!(near(cycle.rate(1.0, 9), 4e-6));
    }
}

//! Draws the plans that the book shows: `cargo run -p tiled-explain --example pictures -- docs/src/img`.
//!
//! Each picture comes with the plan as text beside it.

use std::error::Error;
use std::path::PathBuf;

use tiled_explain::Explain;
use tiled_graph::{Graph, Hold, Loss, Objective, Plan, PlanOptions, Planner, Tiling, UNLIMITED, infer};
use tiled_kernel::Reference;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "target/pictures".to_owned()));
    std::fs::create_dir_all(&folder)?;
    for picture in PICTURES {
        let plan = picture.plan()?;
        let svg = picture.budget.map_or_else(|| plan.to_svg(), |budget| plan.to_svg_within(budget));
        std::fs::write(folder.join(format!("{}.svg", picture.file)), svg)?;
        std::fs::write(folder.join(format!("{}.txt", picture.file)), plan.to_text())?;
    }
    Ok(())
}

/// A plan that is drawn.
struct Picture {
    file: &'static str,
    net: &'static str,
    extents: [usize; 2],
    loss: Option<Loss>,
    hold: Hold,
    tiling: Tiling,
    budget: Option<u64>,
}

const PICTURES: [Picture; 5] = [
    Picture {
        file: "plan-seed-001-recompute",
        net: "seed-001",
        extents: [16, 16],
        loss: Some(Loss::GradOutput),
        hold: Hold::Recompute,
        tiling: Tiling::Grid([4, 4]),
        budget: None,
    },
    Picture {
        file: "plan-light-slide",
        net: "light",
        extents: [512, 512],
        loss: None,
        hold: Hold::Slide,
        tiling: Tiling::Tile([2, 43]),
        budget: Some(2 << 20),
    },
    Picture {
        file: "plan-unet-slide-training",
        net: "unet",
        extents: [512, 512],
        loss: Some(Loss::MeanSquaredError),
        hold: Hold::Slide,
        tiling: Tiling::Tile([8, 512]),
        budget: None,
    },
    Picture {
        file: "plan-vgg16-recompute",
        net: "vgg16",
        extents: [1024, 2048],
        loss: None,
        hold: Hold::Recompute,
        tiling: Tiling::Grid([2, 4]),
        budget: None,
    },
    Picture {
        file: "plan-vgg16-strips-training",
        net: "vgg16",
        extents: [4096, 8192],
        loss: Some(Loss::Sum),
        hold: Hold::Auto,
        tiling: Tiling::Auto,
        budget: Some(1 << 30),
    },
];

impl Picture {
    fn plan(&self) -> Result<Plan, Box<dyn Error>> {
        let graph = Graph::builtin(self.net).ok_or("no such network")?;
        let shapes = infer(&graph, 1, &[self.extents])?;
        let objective = match self.loss {
            None => Objective::inference(),
            Some(Loss::GradOutput) => Objective::gradients(),
            Some(loss) => Objective::training(loss),
        };
        let options = PlanOptions {
            memory_bytes: self.budget.or(Some(UNLIMITED)), // nothing runs
            tiling: self.tiling,
            hold: self.hold,
            ..PlanOptions::default()
        };
        Ok(Planner::<f32>::new(&graph, &shapes, &objective, &Reference).plan(&options)?)
    }
}

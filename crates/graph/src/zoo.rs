//! The built-in networks.

mod builder;
mod classic;
mod unet;

use crate::{Conv2d, Graph, GraphError, MaxPool2d};
use builder::Builder;

impl Graph {
    /// The same as [`Graph::try_builtin`], where there is sure to be room for its lists.
    ///
    /// ```
    /// use tiled_graph::Graph;
    /// let light = Graph::builtin("light").expect("it is built in");
    /// assert_eq!(light.channels(light.outputs()[0]), 32);
    /// assert!(Graph::builtin("heavy").is_none());
    /// ```
    ///
    /// # Panics
    /// Where memory is refused.
    #[must_use]
    pub fn builtin(name: &str) -> Option<Self> {
        Self::try_builtin(name).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The built-in network of this name; see [`builtin_names`].
    ///
    /// # Errors
    /// Where memory is refused.
    ///
    /// ```
    /// use tiled_graph::Graph;
    /// assert_eq!(Graph::try_builtin("vgg2")?, Graph::builtin("vgg2"));
    /// assert_eq!(Graph::try_builtin("heavy")?, None);
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    pub fn try_builtin(name: &str) -> Result<Option<Self>, GraphError> {
        let known = NETWORKS.iter().find(|(known, _)| *known == name);
        known.map(|(_, build)| build()).transpose()
    }
}

/// The names of the built-in networks.
///
/// ```
/// assert!(tiled_graph::builtin_names().any(|name| name == "unet"));
/// ```
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    NETWORKS.iter().map(|(name, _)| *name)
}

type Build = fn() -> Result<Graph, GraphError>;

const NETWORKS: [(&str, Build); 8] = [
    ("seed-001", || seed("CPCP")),
    ("seed-002", || seed("CCCPC")),
    ("vgg2", || classic::vgg(&[&[64, 64], &[128, 128]])),
    ("light", || classic::vgg(&[&[16, 16], &[32, 32]])),
    ("vgg16", || {
        classic::vgg(&[&[64, 64], &[128, 128], &[256, 256, 256], &[512, 512, 512], &[512, 512, 512]])
    }),
    ("darknet19", classic::darknet19),
    ("resnet18", classic::resnet18),
    ("unet", || unet::unet(&[16, 32, 64], 3)),
];

/// One channel throughout: `C` is a 3×3 convolution with padding 1 and no bias, `P` a 2×2 max pooling.
fn seed(operators: &str) -> Result<Graph, GraphError> {
    let mut net = Builder::new(1)?;
    let (mut convs, mut pools) = (0, 0);
    for operator in operators.chars() {
        if operator == 'C' {
            convs += 1;
            net.conv(
                &format!("conv{convs}"),
                Conv2d { bias: false, ..Conv2d::new(1, [3, 3]).padded([1, 1]) },
            )?;
        } else {
            pools += 1;
            net.max_pool(&format!("pool{pools}"), MaxPool2d::new([2, 2]))?;
        }
    }
    net.finish()
}

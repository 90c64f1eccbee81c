//! The values of a network's parameters.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tiled_tensor::{Element, OutOfMemory, collected, copied, filled, push, refusable, with_room};

use super::own::{Init, InputAxis, ParamKind};
use super::{ParamSpec, Rng};
use crate::error::{Extent, GraphError};
use crate::format::names::nearest;

/// A named tensor, flat in row-major order.
///
/// ```
/// use tiled_graph::ParamTensor;
/// let bias = ParamTensor::new("c1.bias", vec![2], vec![0.5_f32, -0.5])?;
/// assert_eq!(bias.data.len(), 2);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ParamTensor<T> {
    /// The name.
    pub name: String,
    /// The shape.
    pub shape: Vec<usize>,
    /// The elements.
    pub data: Vec<T>,
}

impl<T> ParamTensor<T> {
    /// A tensor of these elements.
    ///
    /// # Errors
    /// Where the elements are not as many as the shape says.
    pub fn new(name: &str, shape: Vec<usize>, data: Vec<T>) -> Result<Self, GraphError> {
        let tensor = Self { name: name.to_owned(), shape, data };
        tensor.check_length().map(|()| tensor)
    }

    /// Checks that another tensor, of the same parameter under another of its names, has the same bits.
    ///
    /// # Errors
    /// Where it has not, with the first element that differs.
    pub fn check_copy(&self, other: &Self) -> Result<(), GraphError>
    where
        T: Element,
    {
        let mut pairs = self.data.iter().zip(&other.data);
        match pairs.position(|(a, b)| a.to_bits_u64() != b.to_bits_u64()) {
            None => Ok(()),
            Some(index) => {
                let (name, other) = (self.name.as_str().into(), other.name.as_str().into());
                Err(GraphError::SharedElements { name, other, index })
            }
        }
    }

    fn name_and_shape(&self) -> (&str, &[usize]) {
        (&self.name, &self.shape)
    }

    pub(crate) fn check_length(&self) -> Result<(), GraphError> {
        self.check_fits(self.data.len())
    }

    /// Checks that so many elements are what the shape says.
    fn check_fits(&self, got: usize) -> Result<(), GraphError> {
        let expected = self.shape.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent));
        if expected == Some(got) {
            return Ok(());
        }
        let (name, shape) = (self.name.clone(), self.shape.clone());
        Err(GraphError::ParameterLength { name, shape, expected: Extent(expected), got })
    }
}

/// The parameters of a network, or their gradients: one tensor per [`ParamSpec`], in the same order.
///
/// ```
/// use tiled_graph::{Graph, initialise, params};
/// let specs = params(&Graph::builtin("light").expect("it is built in"));
/// let parameters = initialise::<f32>(&specs, 1);
/// assert_eq!(parameters.get("conv1.weight").map(|tensor| tensor.shape.clone()), Some(vec![16, 3, 3, 3]));
/// ```
#[derive(Clone, Debug)]
pub struct Parameters<T> {
    tensors: Vec<ParamTensor<T>>,
    /// See [`Parameters::version`].
    versions: Vec<u64>,
}

impl<T: PartialEq> PartialEq for Parameters<T> {
    fn eq(&self, other: &Self) -> bool {
        self.tensors == other.tensors
    }
}

/// A number that no tensor of the process has had.
fn new_version() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<T: Element> Parameters<T> {
    /// The parameters of these tensors, given in any order. Counters of batches that the network has no use for ([`wants_tensor`])
    /// are left out. One that several nodes read may be given under any of its names, or under several with the same bits.
    ///
    /// # Errors
    /// Where one is missing, given twice, misshapen or unknown, or under two of its names with different bits. A convolution whose weights differ in their input
    /// channels alone is told so: "conv2d `stem`: input has 4 channels, weight wants 3".
    ///
    /// ```
    /// use tiled_graph::{Graph, Parameters, initialise, params};
    /// let specs = params(&Graph::builtin("seed-001").expect("it is built in"));
    /// let mut tensors = initialise::<f64>(&specs, 1).into_tensors();
    /// tensors.pop();
    /// let error = Parameters::new(&specs, tensors).expect_err("one is missing");
    /// assert_eq!(error.to_string(), "conv2d `conv2`: parameter `conv2.weight` of shape [1, 1, 3, 3] is missing");
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    pub fn new(specs: &[ParamSpec], mut tensors: Vec<ParamTensor<T>>) -> Result<Self, GraphError> {
        let is_wanted = wants_tensor(specs)?;
        tensors.retain(|tensor| is_wanted(&tensor.name));
        let matched = match_params(specs, tensors.iter().map(ParamTensor::name_and_shape))?;
        tensors.iter().try_for_each(ParamTensor::check_length)?;
        for (param, copy) in &matched.copies {
            tensors[matched.indices[*param]].check_copy(&tensors[*copy])?;
        }
        let mut tensors: Vec<_> = collected(tensors.into_iter().map(Some)).map_err(refused(LIST))?;
        // every specification has a place of its own
        let taken = matched.indices.iter().zip(specs).filter_map(|(index, spec)| {
            tensors[*index].take().map(|tensor| ParamTensor { name: spec.name.clone(), ..tensor })
        });
        Self::of_tensors(collected(taken).map_err(refused(LIST))?)
    }

    fn of_tensors(tensors: Vec<ParamTensor<T>>) -> Result<Self, GraphError> {
        let versions = collected(tensors.iter().map(|_| new_version())).map_err(refused(LIST))?;
        Ok(Self { versions, tensors })
    }

    /// The parameters that training starts from, as PyTorch distributes them.
    ///
    /// Each parameter has a generator of its own, [`Rng::named`] of the seed and its name; element `i` is
    /// `bound·(2u − 1)` of its i-th uniform number `u`, rounded once to `T`. So the values do not depend on the other
    /// layers, and those of `f32` are those of `f64`, rounded.
    ///
    /// # Errors
    /// Where memory is refused.
    ///
    /// ```
    /// use tiled_graph::{Graph, Parameters, params};
    /// let specs = params(&Graph::builtin("light").expect("it is built in"));
    /// assert_eq!(Parameters::<f32>::initialised(&specs, 7)?, Parameters::initialised(&specs, 7)?);
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    pub fn initialised(specs: &[ParamSpec], seed: u64) -> Result<Self, GraphError> {
        Self::made(specs, |spec| match spec.init {
            Init::Constant(value) => filled(spec.elements(), T::from_f64(value)),
            Init::Uniform { bound } => {
                let mut rng = Rng::named(seed, &spec.name);
                collected((0..spec.elements()).map(|_| T::from_f64(bound * (2.0 * rng.uniform() - 1.0))))
            }
        })
    }

    /// Zeros of these shapes, where gradients are summed.
    ///
    /// # Errors
    /// Where memory is refused.
    ///
    /// ```
    /// use tiled_graph::{Graph, Parameters, params};
    /// let specs = params(&Graph::builtin("vgg2").expect("it is built in"));
    /// let sums = Parameters::<f32>::zeros(&specs)?;
    /// let bias = sums.get("conv1.bias").expect("it has one");
    /// assert_eq!((bias.shape.as_slice(), bias.data.as_slice()), ([64].as_slice(), [0.0; 64].as_slice()));
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    pub fn zeros(specs: &[ParamSpec]) -> Result<Self, GraphError> {
        Self::made(specs, |spec| tiled_tensor::zeros(spec.elements()))
    }

    /// A copy, of the same versions.
    ///
    /// # Errors
    /// Where memory is refused.
    ///
    /// ```
    /// use tiled_graph::{Graph, initialise, params};
    /// let parameters = initialise::<f32>(&params(&Graph::builtin("light").expect("it is built in")), 1);
    /// assert_eq!(parameters.try_clone()?, parameters);
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    pub fn try_clone(&self) -> Result<Self, GraphError> {
        let mut tensors = with_room(self.tensors.len()).map_err(refused(LIST))?;
        for tensor in &self.tensors {
            let data = copied(&tensor.data).map_err(|error| of_tensor(&tensor.name, error))?;
            tensors.push(ParamTensor { name: tensor.name.clone(), shape: tensor.shape.clone(), data });
        }
        Ok(Self { versions: copied(&self.versions).map_err(refused(LIST))?, tensors })
    }

    /// The tensors, in the order of the specifications.
    #[must_use]
    pub fn tensors(&self) -> &[ParamTensor<T>] {
        &self.tensors
    }

    /// The tensors by value, in the order of the specifications.
    #[must_use]
    pub fn into_tensors(self) -> Vec<ParamTensor<T>> {
        self.tensors
    }

    /// The tensor of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ParamTensor<T>> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// A number that stands for the values of the tensor at this position: two tensors of one version are equal. So who
    /// derived something from a tensor sees whether it may have changed since.
    ///
    /// ```
    /// use tiled_graph::{Graph, initialise, params};
    /// let mut parameters = initialise::<f32>(&params(&Graph::builtin("light").expect("it is built in")), 1);
    /// let before = parameters.version(0);
    /// assert_eq!(parameters.clone().version(0), before);
    /// parameters.data_mut(0).expect("there is one")[0] = 1.0;
    /// assert_ne!(parameters.version(0), before);
    /// ```
    ///
    /// # Panics
    /// Where there is no tensor at this position.
    #[must_use]
    pub fn version(&self, position: usize) -> u64 {
        self.versions[position]
    }

    /// Gives back the memory of the elements of the tensor at this position; name, shape and version stay. A run does that once it has
    /// packed a parameter, where its plan lets it ([`PlanOptions::releases_parameters`](crate::PlanOptions::releases_parameters)).
    pub fn release(&mut self, position: usize) {
        if let Some(tensor) = self.tensors.get_mut(position) {
            tensor.data = Vec::new();
        }
    }

    /// Whether the elements of the tensor at this position are gone: [`ParamTensor::data`] has none of them.
    ///
    /// ```
    /// use tiled_graph::{Graph, initialise, params};
    /// let mut parameters = initialise::<f32>(&params(&Graph::builtin("light").expect("it is built in")), 1);
    /// let before = parameters.version(0);
    /// parameters.release(0);
    /// assert!(parameters.is_released(0) && !parameters.is_released(1));
    /// assert_eq!(parameters.version(0), before);
    /// ```
    #[must_use]
    pub fn is_released(&self, position: usize) -> bool {
        self.tensors.get(position).is_some_and(|tensor| tensor.data.is_empty() && !tensor.shape.contains(&0))
    }

    /// The elements of the tensor at this position, to be changed; none where it [is released](Parameters::is_released).
    #[must_use]
    pub fn data_mut(&mut self, position: usize) -> Option<&mut [T]> {
        let data = self.tensors.get_mut(position)?.data.as_mut_slice();
        renew(&mut self.versions[position], data);
        Some(data)
    }

    /// Gives the tensor at this position other elements, also where it [is released](Parameters::is_released).
    ///
    /// # Errors
    /// Where they are not as many as its shape says, or memory is refused; then it is as before.
    ///
    /// ```
    /// use tiled_graph::{Graph, initialise, params};
    /// let mut parameters = initialise::<f32>(&params(&Graph::builtin("light").expect("it is built in")), 1);
    /// let bias = parameters.tensors()[1].data.clone();
    /// parameters.release(1);
    /// parameters.set(1, &bias)?;
    /// assert_eq!(parameters.tensors()[1].data, bias);
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    ///
    /// # Panics
    /// Where there is no tensor at this position.
    pub fn set(&mut self, position: usize, values: &[T]) -> Result<(), GraphError> {
        let tensor = &mut self.tensors[position];
        tensor.check_fits(values.len())?;
        if tensor.data.len() == values.len() {
            tensor.data.copy_from_slice(values);
        } else {
            tensor.data = copied(values).map_err(|error| of_tensor(&tensor.name, error))?;
        }
        self.versions[position] = new_version();
        Ok(())
    }

    /// The name and the elements of each tensor, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut [T])> {
        self.tensors.iter_mut().zip(&mut self.versions).map(|(tensor, version)| {
            renew(version, &tensor.data);
            (tensor.name.as_str(), tensor.data.as_mut_slice())
        })
    }

    /// Checks that these are the parameters of a network, in its order.
    ///
    /// # Errors
    /// As [`Parameters::new`], and where the network has them in another order or under other names.
    pub fn check(&self, specs: &[ParamSpec]) -> Result<(), GraphError> {
        let mut specs_left = specs.iter();
        for tensor in &self.tensors {
            match specs_left.next() {
                Some(spec) if spec.name == tensor.name => check_shape(spec, &tensor.shape)?,
                _ => {
                    self.match_all(specs)?;
                    return Err(GraphError::ParameterPlace { name: tensor.name.clone() });
                }
            }
        }
        if self.tensors.len() == specs.len() { Ok(()) } else { self.match_all(specs) }
    }

    fn match_all(&self, specs: &[ParamSpec]) -> Result<(), GraphError> {
        match_params(specs, self.tensors.iter().map(ParamTensor::name_and_shape)).map(drop)
    }

    fn made(
        specs: &[ParamSpec],
        values: impl Fn(&ParamSpec) -> Result<Vec<T>, OutOfMemory>,
    ) -> Result<Self, GraphError> {
        let mut tensors = with_room(specs.len()).map_err(refused(LIST))?;
        for spec in specs {
            let data = values(spec).map_err(|error| of_tensor(&spec.name, error))?;
            tensors.push(ParamTensor { name: spec.name.clone(), shape: spec.shape.clone(), data });
        }
        Self::of_tensors(tensors)
    }
}

/// The version of elements that are to be changed; where there are none, none can be.
fn renew<T>(version: &mut u64, data: &[T]) {
    if !data.is_empty() {
        *version = new_version();
    }
}

/// What a list of parameters is called where its memory is refused.
const LIST: &str = "the list of parameters";

/// The error of memory that was refused for something.
fn refused(what: &str) -> impl FnOnce(OutOfMemory) -> GraphError {
    move |OutOfMemory { bytes }| GraphError::OutOfMemory { what: what.to_owned(), bytes }
}

/// The same for the elements of a parameter.
fn of_tensor(name: &str, OutOfMemory { bytes }: OutOfMemory) -> GraphError {
    GraphError::OutOfMemory { what: format!("parameter `{name}`"), bytes }
}

/// The same as [`Parameters::initialised`], for networks whose parameters are sure to find room.
///
/// ```
/// use tiled_graph::{Graph, initialise, params};
/// let specs = params(&Graph::builtin("light").expect("it is built in"));
/// assert_eq!(initialise::<f32>(&specs, 7), initialise::<f32>(&specs, 7));
/// assert_ne!(initialise::<f32>(&specs, 7), initialise::<f32>(&specs, 8));
/// ```
///
/// # Panics
/// Where memory is refused.
#[must_use]
pub fn initialise<T: Element>(specs: &[ParamSpec], seed: u64) -> Parameters<T> {
    Parameters::initialised(specs, seed).unwrap_or_else(|error| panic!("{error}"))
}

/// Whether a tensor of this name counts the batches that running statistics are of: PyTorch keeps one for every batch norm.
///
/// ```
/// assert!(tiled_graph::is_counter("bn1.num_batches_tracked") && !tiled_graph::is_counter("bn1.running_var"));
/// ```
#[must_use]
pub fn is_counter(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, what)| what == ParamKind::NumBatchesTracked.suffix())
}

/// Which tensors of a file of weights a network takes up: all but counters that are none of its parameters. PyTorch counts
/// batches wherever there are running statistics, but nothing reads the count where they move by a fixed momentum.
///
/// # Errors
/// Where memory is refused.
///
/// ```
/// use tiled_graph::{Graph, params, wants_tensor};
/// let specs = params(&Graph::builtin("resnet18").expect("it is built in"));
/// let is_wanted = wants_tensor(&specs)?;
/// assert!(!is_wanted("bn1.num_batches_tracked") && is_wanted("bn1.weight") && is_wanted("a slip"));
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
pub fn wants_tensor(specs: &[ParamSpec]) -> Result<impl Fn(&str) -> bool, GraphError> {
    let counters = specs.iter().filter(|spec| spec.kind == ParamKind::NumBatchesTracked);
    let mut counters = collected(counters.flat_map(ParamSpec::names)).map_err(refused(LIST))?;
    counters.sort_unstable();
    Ok(move |name: &str| !is_counter(name) || counters.binary_search(&name).is_ok())
}

/// Where the parameters of a network stand among tensors.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MatchedParams {
    /// The tensor of each parameter.
    pub indices: Vec<usize>,
    /// Parameters that several nodes read, with tensors that stand for them under others of their names. They must have the
    /// same bits ([`ParamTensor::check_copy`]).
    pub copies: Vec<(usize, usize)>,
}

/// Where the tensor of each parameter stands among tensors of these names and shapes, given in any order: what
/// [`Parameters::new`] checks, without the elements.
///
/// # Errors
/// As [`Parameters::new`].
///
/// ```
/// use tiled_graph::{Graph, match_params, params};
/// let specs = params(&Graph::builtin("seed-001").expect("it is built in"));
/// let given = [("conv2.weight", &[1, 1, 3, 3][..]), ("conv1.weight", &[1, 1, 3, 3])];
/// assert_eq!(match_params(&specs, given)?.indices, [1, 0]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
pub fn match_params<'t>(
    specs: &[ParamSpec],
    tensors: impl IntoIterator<Item = (&'t str, &'t [usize])>,
) -> Result<MatchedParams, GraphError> {
    /// A name of a parameter.
    struct Name {
        param: usize,
        is_given: bool,
    }
    let mut names: HashMap<&str, Name> = HashMap::new();
    let count = specs.iter().map(|spec| 1 + spec.other_names.len()).sum();
    refusable(|| names.try_reserve(count))
        .map_err(|_| refused(LIST)(OutOfMemory::of::<(&str, Name)>(count)))?;
    for (param, spec) in specs.iter().enumerate() {
        names.extend(spec.names().map(|name| (name, Name { param, is_given: false })));
    }
    let mut indices: Vec<Option<usize>> = filled(specs.len(), None).map_err(refused(LIST))?;
    let mut copies = Vec::new();
    for (index, (name, shape)) in tensors.into_iter().enumerate() {
        let Some(Name { param, is_given }) = names.get_mut(name) else {
            let nearest = nearest(name, specs.iter().map(|spec| spec.name.as_str()));
            return Err(GraphError::UnknownParameter { name: name.to_owned(), got: shape.to_vec(), nearest });
        };
        if std::mem::replace(is_given, true) {
            return Err(GraphError::DuplicateParameter { name: name.to_owned() });
        }
        check_shape(&specs[*param], shape)?;
        match &mut indices[*param] {
            Some(_) => push(&mut copies, (*param, index)).map_err(refused(LIST))?,
            first => *first = Some(index),
        }
    }
    let mut all = with_room(specs.len()).map_err(refused(LIST))?;
    for (tensor, spec) in indices.into_iter().zip(specs) {
        all.push(tensor.ok_or_else(|| GraphError::MissingParameter {
            place: spec.place.clone(),
            name: spec.name.clone(),
            expected: spec.shape.clone(),
        })?);
    }
    Ok(MatchedParams { indices: all, copies })
}

fn check_shape(spec: &ParamSpec, got: &[usize]) -> Result<(), GraphError> {
    let expected = &spec.shape;
    if expected == got {
        return Ok(());
    }
    let place = spec.place.clone();
    if let Some((wants, has)) = input_channels(spec, got) {
        return Err(GraphError::Channels { place, what: "weight", expected: wants, got: has });
    }
    let (name, expected, got) = (spec.name.as_str().into(), expected.clone(), got.to_vec());
    Err(GraphError::ParameterShape { place, name, expected, got })
}

/// The input channels that a weight of shape `got` wants and those that there are, where they alone differ.
fn input_channels(spec: &ParamSpec, got: &[usize]) -> Option<(usize, usize)> {
    let InputAxis { axis, groups } = spec.input?;
    let differs = |position: usize| got[position] != spec.shape[position];
    let alone = got.len() == spec.shape.len() && (0..got.len()).all(|at| at == axis || !differs(at));
    let wants = got.get(axis)?.checked_mul(groups)?;
    alone.then_some((wants, spec.shape[axis] * groups))
}

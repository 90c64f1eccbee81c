//! Rules over whole numbers in a grid, of which exporters make the index of an assignment: the numbers of the images, of the
//! channels and maybe of rows and columns, each reshaped to an axis of its own, expanded to all of them and joined to coordinates.
//!
//! They leave no node. Numbers that run through an axis stay a formula of its extent where that is open.

use std::rc::Rc;

use super::filled;
use super::operator::Operator;
use crate::Reason;
use crate::import::extents::Extents;
use crate::import::grid::{Coordinate, Grid, List, MOST_AXES, Run, broadcast, is_same};
use crate::import::numbers::{MAX_NUMBERS, Num, Numbers, whole};
use crate::import::site::Site;
use crate::import::value::{Constant, Places, Table, Value};
use crate::tensor::is_float;

/// What a node makes of numbers in a grid, or of whole numbers that become one; `None` where it is left to the rule of its operator.
pub(super) fn made(operator: &Operator, site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    match operator.name {
        "Add" => sum(site),
        "Cast" => cast(site),
        "Concat" => joined(site),
        "Expand" => expanded(site),
        "Reshape" => reshaped(site),
        "Slice" => sliced(site),
        "Unsqueeze" => unsqueezed(site),
        _ => Ok(None),
    }
}

/// `start, start + step, …` below a limit, where the numbers are whole and run through an axis or are many; `None` of others.
pub(super) fn range(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let bounds = [site.numbers(0)?, site.numbers(1)?, site.numbers(2)?];
    let [[first], [limit], [step]] = bounds.each_ref().map(|bound| bound.items.as_slice()) else {
        return Ok(None);
    };
    let (first, step) = (known(site, *first), known(site, *step));
    let (true, Some(first), Some(step)) = (bounds.iter().all(|bound| bound.is_integer), first, step) else {
        return Ok(None);
    };
    let count = match *limit {
        Num::Extent(_) if (first, step) == (0, 1) => *limit,
        _ => match known(site, *limit) {
            Some(limit) if first >= 0 && step > 0 => {
                let left = limit.saturating_sub(first).max(0).saturating_add(step - 1) / step;
                Num::Known(left as f64)
            }
            _ => return Ok(None),
        },
    };
    let is_short = known(site, count).is_some_and(|count| usize::try_from(count).is_ok_and(is_few));
    Ok((!is_short).then(|| line(Run::Steps { first, step, count }, vec![count])))
}

/// The extents as a model sees them.
pub(super) fn shape(grid: &Grid) -> Vec<Num> {
    let coordinates = grid.is_index.then_some(Num::Known(grid.coordinates.len() as f64));
    grid.extents.iter().copied().chain(coordinates).collect()
}

/// The coordinates of an index: computed ones, or a constant that is checked element by element; `None` of other operands.
pub(super) fn index(site: &mut Site<'_>, position: usize) -> Result<Option<Grid>, Reason> {
    match site.operand(position)? {
        Value::Grid(grid) => Ok(grid.is_index.then(|| Grid::clone(grid))),
        Value::Constant(constant) => {
            let constant = constant.clone();
            of_constant(site, &constant)
        }
        _ => Ok(None),
    }
}

/// A constant whose coordinates change along an axis each, in their order; `None` of others.
fn of_constant(site: &mut Site<'_>, constant: &Constant) -> Result<Option<Grid>, Reason> {
    let [extents @ .., count] = &*constant.shape else { return Ok(None) };
    let is_index = (1..=MOST_AXES).contains(count) && extents.len() == *count && !constant.transposed;
    if !is_index || extents.contains(&0) || !is_integer(site, constant) {
        return Ok(None);
    }
    let _room = site.tensors.room(constant.shape.iter().product(), size_of::<f64>())?;
    let values = site.values(constant)?;
    let mut coordinates = Vec::new();
    for axis in 0..*count {
        let behind: usize = extents[axis + 1..].iter().product();
        let along: Vec<f64> =
            values.iter().skip(axis).step_by(behind * count).take(extents[axis]).copied().collect();
        let mut all = values.iter().skip(axis).step_by(*count).enumerate();
        let Some(numbers) = run(site, &along)? else { return Ok(None) };
        if !all.all(|(place, value)| along.get(place / behind % extents[axis]) == Some(value)) {
            return Ok(None);
        }
        coordinates.push(Coordinate { axis, numbers });
    }
    let extents = extents.iter().map(|extent| Num::Known(*extent as f64)).collect();
    Ok(Some(Grid { extents, coordinates, is_index: true }))
}

/// Numbers that change along one axis at most; `None` of other operands.
fn of(site: &mut Site<'_>, position: usize) -> Result<Option<Grid>, Reason> {
    let (values, shape) = match site.operand(position)?.clone() {
        Value::Grid(grid) => return Ok((!grid.is_index).then(|| Grid::clone(&grid))),
        // the numbers of the images
        Value::Places(Places { of_image: 1.0, has_axes: false, channels: 1 }) => {
            let count = Num::Extent(Extents::BATCH);
            return Ok(Some(grid(Run::Steps { first: 0, step: 1, count }, vec![count])));
        }
        Value::Numbers(numbers) if numbers.is_integer && !numbers.is_scalar => {
            let Some(values) = all_known(&numbers.items) else { return Ok(None) };
            let shape = vec![values.len()];
            (values, shape)
        }
        Value::Table(table) if is_column(&table) => {
            let Some(values) = all_known(&table.rows.concat()) else { return Ok(None) };
            let shape = vec![values.len(), 1];
            (values, shape)
        }
        Value::Constant(constant) if is_line(&constant) && is_integer(site, &constant) => {
            let _room = site.tensors.room(constant.shape.iter().product(), size_of::<f64>())?;
            (site.values(&constant)?, constant.shape.to_vec())
        }
        _ => return Ok(None),
    };
    let axis = shape.iter().position(|extent| *extent != 1).unwrap_or_default();
    let extents = shape.iter().map(|extent| Num::Known(*extent as f64)).collect();
    let numbers = run(site, &values)?;
    Ok(numbers.map(|numbers| Grid {
        extents,
        coordinates: vec![Coordinate { axis, numbers }],
        is_index: false,
    }))
}

/// Whole numbers as steps where they are some, else as a list; `None` of none and of a long list.
fn run(site: &Site<'_>, values: &[f64]) -> Result<Option<Run>, Reason> {
    let at = |place: usize| values.get(place).and_then(|value| whole(*value));
    let Some(first) = at(0) else { return Ok(None) };
    let step = at(1).and_then(|second| second.checked_sub(first)).unwrap_or(1);
    let is_step = |(place, value): (usize, &f64)| *value == first as f64 + place as f64 * step as f64;
    if values.iter().enumerate().all(is_step) {
        return Ok(Some(Run::Steps { first, step, count: Num::Known(values.len() as f64) }));
    }
    if values.len() > MOST_LISTED {
        return Ok(None);
    }
    let room = site.tensors.room(values.len(), size_of::<i64>())?;
    let numbers: Option<Vec<i64>> = values.iter().map(|value| whole(*value)).collect();
    Ok(numbers.map(|numbers| Run::List(Rc::new(List { numbers, room }))))
}

/// Some numbers of one axis, forward; `None` of other values.
fn sliced(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let is_many = match site.operand(0)? {
        Value::Grid(_) => true,
        Value::Constant(constant) => constant.shape.len() == 1 && !is_few(constant.shape[0]),
        _ => false,
    };
    let Some(Grid { extents, coordinates, .. }) = (if is_many { of(site, 0)? } else { None }) else {
        return Ok(None);
    };
    let mut list = |position: usize, name: &'static str, other: i64| {
        if site.has(position) {
            site.whole(position)
        } else {
            Ok(site.ints(name)?.unwrap_or_else(|| vec![other]))
        }
    };
    let given = [list(1, "starts", 0)?, list(2, "ends", 0)?, list(3, "axes", 0)?, list(4, "steps", 1)?];
    let ([[start], [end], [0 | -1], [by]], [coordinate], [count]) =
        (given.each_ref().map(Vec::as_slice), coordinates.as_slice(), extents.as_slice())
    else {
        return site.wrong(0, "numbers that are cut along their one axis, forward");
    };
    if *by < 1 {
        return site.wrong(4, "a step forward");
    }
    // the end of an axis, as exporters write it
    if (*start, *by) == (0, 1) && matches!(*end, i64::MAX | 0x7fff_ffff) {
        return Ok(Some(line(coordinate.numbers.clone(), vec![*count])));
    }
    let Some(len) = known(site, *count) else { return Err(Reason::OpenSize { what: "what is cut" }) };
    let place = |place: i64| (if place < 0 { place.saturating_add(len) } else { place }).clamp(0, len);
    let (begin, end) = (place(*start), place(*end));
    let left = (end - begin).max(0).saturating_add(by - 1) / by;
    let extent = Num::Known(left as f64);
    let numbers = match &coordinate.numbers {
        Run::Steps { first, step, .. } => {
            let moved = begin.checked_mul(*step).and_then(|begin| first.checked_add(begin));
            let step = step.checked_mul(*by);
            moved.zip(step).map(|(first, step)| Run::Steps { first, step, count: extent })
        }
        Run::List(list) => {
            let of = [begin, end.max(begin), *by].map(|place| usize::try_from(place).unwrap_or_default());
            let part = list.numbers.get(of[0]..of[1]).unwrap_or_default();
            let values: Vec<f64> = part.iter().step_by(of[2]).map(|number| *number as f64).collect();
            run(site, &values)?
        }
    };
    match numbers.filter(|_| left > 0) {
        Some(numbers) => Ok(Some(line(numbers, vec![extent]))),
        None => site.wrong(0, "numbers of which some are left"),
    }
}

/// Numbers of one axis with axes of one behind it; `None` of other values.
fn reshaped(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let is_line = matches!(site.operand(0)?, Value::Grid(_) | Value::Places(_) | Value::Numbers(_));
    if !is_line || !site.is_numbers(1) {
        return Ok(None);
    }
    // in two axes numbers are a table
    let least = if matches!(site.operand(0)?, Value::Numbers(_)) { 3 } else { 2 };
    let wanted = site.numbers(1)?;
    let [count, ones @ ..] = wanted.items.as_slice() else { return Ok(None) };
    let are_ones = ones.iter().all(|item| *item == Num::Known(1.0));
    if !are_ones || !(least..=MOST_AXES).contains(&wanted.items.len()) {
        return Ok(None);
    }
    let Some(Grid { extents, coordinates, .. }) = of(site, 0)? else { return Ok(None) };
    let ([extent], [coordinate]) = (extents.as_slice(), coordinates.as_slice()) else { return Ok(None) };
    if *count != Num::Known(-1.0) && !is_same(*count, *extent, &site.plans.extents) {
        return site.wrong(1, "a shape of as many numbers");
    }
    let extents = std::iter::once(*extent).chain(ones.iter().copied()).collect();
    Ok(Some(line(coordinate.numbers.clone(), extents)))
}

/// The sum of numbers along several axes, of which exporters read the shape alone; `None` of other values.
fn sum(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let is_wide = |operand: &Option<Value>| match operand {
        Some(Value::Grid(_) | Value::Table(_)) => true,
        Some(Value::Constant(constant)) => constant.shape.len() > 1,
        _ => false,
    };
    if !site.operands.iter().any(is_wide) {
        return Ok(None);
    }
    let (Some(a), Some(b)) = (of(site, 0)?, of(site, 1)?) else { return Ok(None) };
    let Some(extents) = broadcast(&a.extents, &b.extents, &site.plans.extents) else { return Ok(None) };
    Ok(Some(Value::Grid(Rc::new(Grid { extents, coordinates: Vec::new(), is_index: false }))))
}

/// One number everywhere as floats, which is a value as large as an image; `None` of other values and types.
fn cast(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Value::Grid(grid) = site.operand(0)? else { return Ok(None) };
    let grid = Rc::clone(grid);
    let to = i32::try_from(site.int("to", 0)?).unwrap_or_default();
    match grid.coordinates.as_slice() {
        [Coordinate { numbers: Run::Steps { first, count: Num::Known(1.0), .. }, .. }]
            if is_float(to) && !grid.is_index =>
        {
            filled::of_shape(site, &Numbers::whole(grid.extents.clone()), *first as f64)
        }
        _ => Ok(None),
    }
}

/// Numbers along one axis of several; `None` of other values.
fn expanded(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let wanted = if site.is_numbers(1) { site.numbers(1)?.items.clone() } else { return Ok(None) };
    if wanted.len() > MOST_AXES || wanted.contains(&Num::Known(0.0)) {
        return Ok(None);
    }
    let Some(grid) = of(site, 0)? else { return Ok(None) };
    let Some(extents) = broadcast(&grid.extents, &wanted, &site.plans.extents) else {
        return site.wrong(1, "extents that are those of the numbers, from the last one on, or one");
    };
    let before = extents.len() - grid.extents.len();
    let moved = |coordinate: &Coordinate| Coordinate {
        axis: coordinate.axis + before,
        numbers: coordinate.numbers.clone(),
    };
    let coordinates = grid.coordinates.iter().map(moved).collect();
    Ok(Some(Value::Grid(Rc::new(Grid { extents, coordinates, is_index: false }))))
}

/// A last axis for the coordinates; `None` of other values and axes.
fn unsqueezed(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    if !matches!(site.operand(0)?, Value::Grid(_) | Value::Numbers(_) | Value::Places(_)) {
        return Ok(None);
    }
    let axes = if site.has(1) { Some(site.whole(1)?) } else { site.ints("axes")? };
    let Some(grid) = of(site, 0)? else { return Ok(None) };
    let last = i64::try_from(grid.extents.len()).unwrap_or(i64::MAX);
    let is_last = axes.is_some_and(|axes| axes == [-1] || axes == [last]);
    let is_index = is_last && grid.coordinates.len() == 1;
    Ok(is_index.then(|| Value::Grid(Rc::new(Grid { is_index, ..grid }))))
}

/// Coordinates one after another; `None` of other values and axes.
fn joined(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let grids: Option<Vec<Rc<Grid>>> = site
        .operands
        .iter()
        .map(|operand| match operand {
            Some(Value::Grid(grid)) if grid.is_index => Some(Rc::clone(grid)),
            _ => None,
        })
        .collect();
    let Some([first, others @ ..]) = grids.as_deref() else { return Ok(None) };
    let last = i64::try_from(first.extents.len()).unwrap_or(i64::MAX);
    let axis = site.int("axis", 0)?;
    let is_alike = |grid: &Rc<Grid>| {
        let pairs = grid.extents.iter().zip(&first.extents);
        grid.extents.len() == first.extents.len()
            && pairs.into_iter().all(|(a, b)| is_same(*a, *b, &site.plans.extents))
    };
    if (axis != -1 && axis != last) || !others.iter().all(is_alike) || others.len() >= MOST_AXES {
        return site.wrong(0, "coordinates of the same elements, which are joined along the last axis");
    }
    let coordinates: Vec<Coordinate> =
        grids.iter().flatten().flat_map(|grid| grid.coordinates.iter().cloned()).collect();
    if coordinates.len() > MOST_AXES {
        return site.wrong(0, "coordinates along at most four axes");
    }
    Ok(Some(Value::Grid(Rc::new(Grid { extents: first.extents.clone(), coordinates, is_index: true }))))
}

/// Numbers along the first of these axes.
fn line(numbers: Run, extents: Vec<Num>) -> Value {
    Value::Grid(Rc::new(grid(numbers, extents)))
}

fn grid(numbers: Run, extents: Vec<Num>) -> Grid {
    Grid { extents, coordinates: vec![Coordinate { axis: 0, numbers }], is_index: false }
}

/// Whether a constant has one axis that is not one, or none, among as many as a grid has.
fn is_line(constant: &Constant) -> bool {
    let wide = constant.shape.iter().filter(|extent| **extent != 1);
    (1..=MOST_AXES).contains(&constant.shape.len()) && wide.count() <= 1 && !constant.transposed
}

fn is_integer(site: &mut Site<'_>, constant: &Constant) -> bool {
    site.tensors.check(constant.tensor).is_ok_and(|stored| stored.is_integer())
}

fn is_column(table: &Table) -> bool {
    table.is_integer && table.rows.iter().all(|row| row.len() == 1)
}

/// Whether so many are a list of numbers, with its rules.
fn is_few(count: usize) -> bool {
    count <= MAX_NUMBERS
}

fn known(site: &Site<'_>, item: Num) -> Option<i64> {
    item.known(&site.plans.extents).and_then(whole)
}

fn all_known(items: &[Num]) -> Option<Vec<f64>> {
    items.iter().map(|item| if let Num::Known(value) = item { Some(*value) } else { None }).collect()
}

/// Numbers that are no steps, at most: far more than a node of the network has parts.
const MOST_LISTED: usize = 1 << 12;

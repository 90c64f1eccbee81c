//! Rows of numbers: how exporters turn PyTorch's padding, the last axis first, into that of ONNX, the first axis first. The list is
//! reshaped to pairs, whose rows are reversed and which are transposed and joined again.

use std::rc::Rc;

use crate::Reason;
use crate::import::numbers::{Num, Numbers};
use crate::import::site::Site;
use crate::import::value::{Table, Value};

/// A list in rows, or rows as a list; `None` of other reshapings.
pub(super) fn reshape(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    if let Value::Table(table) = site.operand(0)? {
        let table = Rc::clone(table);
        if site.whole(1)? != [-1] {
            return site.wrong(1, "a shape of one axis, -1");
        }
        let items = table.rows.concat();
        return Ok(Some(Value::Numbers(Rc::new(Numbers {
            items,
            is_scalar: false,
            is_integer: table.is_integer,
            is_double: false,
        }))));
    }
    if !site.is_numbers(0) {
        return Ok(None);
    }
    let (numbers, shape) = (site.numbers(0)?, site.whole(1)?);
    let [-1, columns] = *shape.as_slice() else { return Ok(None) };
    let columns = usize::try_from(columns).ok().filter(|columns| *columns > 0);
    let Some(columns) = columns.filter(|columns| numbers.items.len().is_multiple_of(*columns)) else {
        return site.wrong(1, "a shape of as many numbers");
    };
    let rows = numbers.items.chunks_exact(columns).map(<[Num]>::to_vec).collect();
    Ok(Some(Value::Table(Rc::new(Table { rows, is_integer: numbers.is_integer }))))
}

/// The rows, from the last one to the first; `None` where it is no table.
pub(super) fn reversed(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Value::Table(table) = site.operand(0)? else { return Ok(None) };
    let table = Rc::clone(table);
    let all = [site.whole(1)?, site.whole(2)?, site.whole(3)?, site.whole(4)?];
    let len = i64::try_from(table.rows.len()).unwrap_or(i64::MAX);
    let is_reversal = match all.each_ref().map(Vec::as_slice) {
        [[start], [end], [0], [-1]] => (*start == -1 || *start >= len - 1) && *end < -len,
        _ => false,
    };
    if !is_reversal {
        return site.wrong(0, "rows that are reversed whole");
    }
    let rows = table.rows.iter().rev().cloned().collect();
    Ok(Some(Value::Table(Rc::new(Table { rows, ..*table }))))
}

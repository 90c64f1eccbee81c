//! Rules of what moves elements by indices.

use tiled_tensor::Element;

use crate::error::{Result, TapeError};
use crate::op::Op;
use crate::tape::flow::Flow;

pub(super) fn take<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let Op::Take { axis, index, padding } = flow.op() else {
        unreachable!("invariant: the table pairs them")
    };
    let (dy, operator) = (flow.dy()?, flow.op().name());
    let context = dy.context();
    let dense = context.dense();
    let failed = |source| TapeError::Index { operator, source };
    let values = dy.values();
    let Some(padding) = padding.filter(|padding| index.iter().any(|index| index == padding)) else {
        return flow.add(0, |dx| dense.put_add(values.view(), *axis, index.view(), dx).map_err(failed));
    };
    // rows of padding have no gradient
    let kept: Vec<usize> = (0..index.len()).filter(|at| index[*at] != padding).collect();
    let (dy, index) =
        (values.view().select(ndarray::Axis(*axis), &kept), index.select(ndarray::Axis(0), &kept));
    flow.add(0, |dx| dense.put_add(dy.view(), *axis, index.view(), dx).map_err(failed))
}

pub(super) fn gather<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let Op::Gather { axis, index } = flow.op() else { unreachable!("invariant: the table pairs them") };
    let dy = flow.dy()?;
    let values = dy.values();
    flow.add(0, |dx| {
        let scattered = dy.context().dense().scatter_add(values.view(), *axis, index.view(), dx);
        scattered.map_err(|source| TapeError::Index { operator: "gather", source })
    })
}

pub(super) fn scatter_add<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let Op::ScatterAdd { axis, index } = flow.op() else { unreachable!("invariant: the table pairs them") };
    let dy = flow.dy()?;
    flow.pass(0, dy.clone())?;
    if flow.wants(1) {
        let context = dy.context();
        let gathered = context.empty("scatter_add", index.shape())?;
        {
            let mut memory = gathered.storage().write();
            let to = gathered.layout().view_mut(&mut memory);
            let taken = context.dense().gather(dy.values().view(), *axis, index.view(), to);
            taken.map_err(|source| TapeError::Index { operator: "scatter_add", source })?;
        }
        flow.pass(1, gathered)?;
    }
    Ok(())
}

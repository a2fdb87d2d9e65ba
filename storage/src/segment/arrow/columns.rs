//! Which field nodes and buffers of a record batch message belong to which column.

use std::ops::Range;

use arrow::datatypes::{DataType, Field, Schema};

use super::super::SegmentError;

/// Where the parts of one top-level column are, in the message's flat lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ColumnSpan {
    pub(super) nodes: Range<usize>,
    pub(super) buffers: Range<usize>,
}

/// The spans of all columns, in schema order (Arrow columnar format, "RecordBatch message": depth-first, pre-order).
pub(super) fn column_spans(schema: &Schema) -> Result<Vec<ColumnSpan>, SegmentError> {
    let (mut node, mut buffer) = (0, 0);
    schema
        .fields()
        .iter()
        .map(|field| {
            let (nodes, buffers) = parts(field, field.name())?;
            let span = ColumnSpan { nodes: node..node + nodes, buffers: buffer..buffer + buffers };
            (node, buffer) = (span.nodes.end, span.buffers.end);
            Ok(span)
        })
        .collect()
}

/// Number of nodes and buffers of a field and all below it. Lists the types that segments store.
fn parts(field: &Field, column: &str) -> Result<(usize, usize), SegmentError> {
    let (buffers, children): (usize, Vec<&Field>) = match field.data_type() {
        DataType::Null => (0, vec![]),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => (3, vec![]),
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => (2, vec![item]),
        DataType::FixedSizeList(item, _) => (1, vec![item]),
        DataType::Struct(fields) => (1, fields.iter().map(AsRef::as_ref).collect()),
        fixed if fixed.is_primitive() || matches!(fixed, DataType::Boolean | DataType::FixedSizeBinary(_)) => {
            (2, vec![])
        }
        // Views, unions, run-end encoding, and dictionaries of users: no table type maps to them.
        other => return Err(SegmentError::UnsupportedType { column: column.to_owned(), data_type: other.clone() }),
    };
    children.into_iter().try_fold((1, buffers), |(nodes, buffers), child| {
        let (child_nodes, child_buffers) = parts(child, column)?;
        Ok((nodes + child_nodes, buffers + child_buffers))
    })
}

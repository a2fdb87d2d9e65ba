//! Arrow arrays resolved to their types once, so that writing a value is an index and a match.

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, FixedSizeBinaryArray, ListArray, StringArray};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type, Time64MicrosecondType,
    TimestampMicrosecondType,
};

use crate::schema::ColumnType;

/// A column of a batch.
pub(super) struct BoundColumn {
    nulls: Option<NullBuffer>,
    pub values: BoundValues,
}

pub(super) enum BoundValues {
    Boolean(BooleanArray),
    /// INT and DATE.
    Int32(ScalarBuffer<i32>),
    /// BIGINT, TIME and the timestamps.
    Int64(ScalarBuffer<i64>),
    Float32(ScalarBuffer<f32>),
    Float64(ScalarBuffer<f64>),
    Decimal(ScalarBuffer<i128>),
    String(StringArray),
    Binary(BinaryArray),
    Uuid(FixedSizeBinaryArray),
    Array {
        offsets: OffsetBuffer<i32>,
        element: Box<BoundColumn>,
    },
    Map {
        offsets: OffsetBuffer<i32>,
        keys: StringArray,
        values: Box<BoundColumn>,
    },
    Struct(Vec<BoundColumn>),
}

impl BoundColumn {
    /// `None` when the array is not of the column's Arrow type.
    pub fn bind(array: &ArrayRef, data_type: &ColumnType) -> Option<Self> {
        let values = match data_type {
            ColumnType::Boolean => BoundValues::Boolean(array.as_boolean_opt()?.clone()),
            ColumnType::Int => BoundValues::Int32(array.as_primitive_opt::<Int32Type>()?.values().clone()),
            ColumnType::Date => BoundValues::Int32(array.as_primitive_opt::<Date32Type>()?.values().clone()),
            ColumnType::BigInt => BoundValues::Int64(array.as_primitive_opt::<Int64Type>()?.values().clone()),
            ColumnType::Time => BoundValues::Int64(array.as_primitive_opt::<Time64MicrosecondType>()?.values().clone()),
            ColumnType::Timestamp(_) | ColumnType::TimestampTz(_) => {
                BoundValues::Int64(array.as_primitive_opt::<TimestampMicrosecondType>()?.values().clone())
            }
            ColumnType::Float => BoundValues::Float32(array.as_primitive_opt::<Float32Type>()?.values().clone()),
            ColumnType::Double => BoundValues::Float64(array.as_primitive_opt::<Float64Type>()?.values().clone()),
            ColumnType::Decimal { scale, .. } => {
                let decimals = array.as_primitive_opt::<Decimal128Type>()?;
                if u8::try_from(decimals.scale()) != Ok(*scale) {
                    return None;
                }
                BoundValues::Decimal(decimals.values().clone())
            }
            ColumnType::String => BoundValues::String(array.as_string_opt()?.clone()),
            ColumnType::Binary => BoundValues::Binary(array.as_binary_opt()?.clone()),
            ColumnType::Uuid => {
                let uuids = array.as_fixed_size_binary_opt()?;
                if uuids.value_length() != 16 {
                    return None;
                }
                BoundValues::Uuid(uuids.clone())
            }
            ColumnType::Array(element) => {
                let list: &ListArray = array.as_list_opt()?;
                let element = Box::new(Self::bind(list.values(), &element.data_type)?);
                BoundValues::Array { offsets: list.offsets().clone(), element }
            }
            ColumnType::Map(value) => {
                let map = array.as_map_opt()?;
                let keys = map.keys().as_string_opt()?.clone();
                let values = Box::new(Self::bind(map.values(), &value.data_type)?);
                BoundValues::Map { offsets: map.offsets().clone(), keys, values }
            }
            ColumnType::Struct(columns) => {
                let fields = array.as_struct_opt()?;
                let children =
                    columns.iter().map(|column| Self::bind(fields.column_by_name(&column.name)?, &column.data_type));
                BoundValues::Struct(children.collect::<Option<_>>()?)
            }
        };
        Some(Self { nulls: array.nulls().cloned(), values })
    }

    #[inline(always)]
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }
}

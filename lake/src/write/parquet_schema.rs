//! The Parquet schema of a data file: Arrow's own translation, with UUIDs said to be UUIDs.
//!
//! Iceberg asks for the logical type UUID on a fixed 16-byte column; the Arrow writer leaves it out.

use std::sync::Arc;

use arrow::datatypes::Schema as ArrowSchema;
use parquet::arrow::ArrowSchemaConverter;
use parquet::basic::{LogicalType, Type as PhysicalType};
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};

use crate::LakeError;

const UUID_BYTES: i32 = 16;

/// The schema of files that hold `arrow`.
pub(super) fn of(arrow: &ArrowSchema) -> Result<SchemaDescriptor, LakeError> {
    let plain = ArrowSchemaConverter::new().convert(arrow)?;
    Ok(SchemaDescriptor::new(with_uuids(&plain.root_schema_ptr())?))
}

fn with_uuids(node: &TypePtr) -> Result<TypePtr, LakeError> {
    match node.as_ref() {
        Type::PrimitiveType { basic_info, physical_type, type_length, .. } => {
            let is_uuid = *physical_type == PhysicalType::FIXED_LEN_BYTE_ARRAY
                && *type_length == UUID_BYTES
                && basic_info.logical_type_ref().is_none();
            if !is_uuid {
                return Ok(Arc::clone(node));
            }
            let id = basic_info.has_id().then(|| basic_info.id());
            let named = Type::primitive_type_builder(basic_info.name(), *physical_type)
                .with_length(UUID_BYTES)
                .with_repetition(basic_info.repetition())
                .with_logical_type(Some(LogicalType::Uuid))
                .with_id(id)
                .build()?;
            Ok(Arc::new(named))
        }
        Type::GroupType { basic_info, fields } => {
            let fields = fields.iter().map(with_uuids).collect::<Result<Vec<_>, _>>()?;
            let mut group = Type::group_type_builder(basic_info.name())
                .with_fields(fields)
                .with_converted_type(basic_info.converted_type())
                .with_logical_type(basic_info.logical_type_ref().cloned())
                .with_id(basic_info.has_id().then(|| basic_info.id()));
            if basic_info.has_repetition() {
                group = group.with_repetition(basic_info.repetition());
            }
            Ok(Arc::new(group.build()?))
        }
    }
}

//! Metadata of tables that do not exist yet.

use std::collections::HashMap;

use iceberg::spec::{FormatVersion, Schema, SortOrder, TableMetadata, TableMetadataBuilder, UnboundPartitionSpec};
use iceberg::{TableIdent, TableUpdate};
use iceberg_catalog_rest::CreateTableRequest;

use super::RestError;

/// Not a property of the metadata, but of the request: clients send it among the properties.
const FORMAT_VERSION: &str = "format-version";

/// The first metadata of a table that is asked for.
pub(super) fn new_metadata(request: CreateTableRequest, location: String) -> Result<TableMetadata, RestError> {
    let mut properties = request.properties;
    let format_version = match properties.remove(FORMAT_VERSION).as_deref() {
        None | Some("2") => FormatVersion::V2,
        Some("1") => FormatVersion::V1,
        Some("3") => FormatVersion::V3,
        Some(other) => {
            return Err(RestError::bad_request(format!("format-version '{other}' is not known; use 1, 2 or 3")));
        }
    };
    build(
        request.schema,
        request.partition_spec.unwrap_or_else(|| UnboundPartitionSpec::builder().build()),
        request.write_order.unwrap_or_else(SortOrder::unsorted_order),
        request.location.unwrap_or(location),
        format_version,
        properties,
    )
}

fn build(
    schema: Schema,
    spec: UnboundPartitionSpec,
    order: SortOrder,
    location: String,
    format_version: FormatVersion,
    properties: HashMap<String, String>,
) -> Result<TableMetadata, RestError> {
    TableMetadataBuilder::new(schema, spec, order, location, format_version, properties)
        .and_then(TableMetadataBuilder::build)
        .map(|built| built.metadata)
        .map_err(|error| RestError::bad_request(error.to_string()))
}

/// Metadata of a table whose creation was staged and is committed now: what defines a table is taken from the updates, the
/// rest is applied to it in order. Field ids come out as they were staged, because both times they are assigned anew in the
/// same order.
pub(super) fn created_metadata(
    ident: &TableIdent,
    updates: Vec<TableUpdate>,
    default_location: String,
) -> Result<TableMetadata, RestError> {
    let mut definition = Definition { location: default_location, ..Definition::default() };
    let mut rest = Vec::new();
    for update in updates {
        match update {
            TableUpdate::AddSchema { schema } if definition.schema.is_none() => definition.schema = Some(schema),
            TableUpdate::AddSpec { spec } if definition.spec.is_none() => definition.spec = Some(spec),
            TableUpdate::AddSortOrder { sort_order } if definition.order.is_none() => {
                definition.order = Some(sort_order);
            }
            TableUpdate::SetLocation { location } => definition.location = location,
            TableUpdate::UpgradeFormatVersion { format_version } => definition.format_version = format_version,
            TableUpdate::SetProperties { updates } => definition.properties.extend(updates),
            // They name what was just added.
            TableUpdate::SetCurrentSchema { .. }
            | TableUpdate::SetDefaultSpec { .. }
            | TableUpdate::SetDefaultSortOrder { .. } => {}
            other => rest.push(other),
        }
    }
    definition.properties.remove(FORMAT_VERSION);
    let Some(schema) = definition.schema else {
        return Err(RestError::bad_request(format!("'{ident}' cannot be created without a schema")));
    };
    let metadata = build(
        schema,
        definition.spec.unwrap_or_else(|| UnboundPartitionSpec::builder().build()),
        definition.order.unwrap_or_else(SortOrder::unsorted_order),
        definition.location,
        definition.format_version,
        definition.properties,
    )?;
    let mut builder = metadata.into_builder(None);
    for update in rest {
        builder = update.apply(builder).map_err(|error| RestError::bad_request(error.to_string()))?;
    }
    builder.build().map(|built| built.metadata).map_err(|error| RestError::bad_request(error.to_string()))
}

struct Definition {
    schema: Option<Schema>,
    spec: Option<UnboundPartitionSpec>,
    order: Option<SortOrder>,
    location: String,
    format_version: FormatVersion,
    properties: HashMap<String, String>,
}

impl Default for Definition {
    fn default() -> Self {
        Self {
            schema: None,
            spec: None,
            order: None,
            location: String::new(),
            format_version: FormatVersion::V2,
            properties: HashMap::new(),
        }
    }
}

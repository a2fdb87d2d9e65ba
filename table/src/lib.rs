//! What a topic's rows look like, and how their bytes become columns and come back.
//!
//! - [`schema`]: the SQL column grammar of `weir.schema`, the Arrow types behind it, and the *log schema* every columnar
//!   reader and writer of Weir exchanges.
//! - [`json`]: JSON rows to Arrow builders with per-row rollback, and Arrow rows back to the very bytes they came from.
//! - [`read_options`]: `weir.columns` and `weir.format` as a client asks for them.
//!
//! Nothing here touches a file or a socket.

pub mod json;
pub mod read_options;
pub mod schema;

pub use json::{
    EncodeError, EncodedValue, JsonDecoder, RowError, SealedValues, ValueEncoder, decode_batch, seal_values,
};
pub use read_options::{OptionError, ReadFormat, ReadOptions};
pub use schema::{Column, ColumnType, SchemaError, SecondFraction, TableSchema, ValueFormat};

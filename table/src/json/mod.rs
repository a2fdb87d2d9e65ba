//! JSON values to Arrow rows ([`decode`]) and Arrow rows back to the bytes they came from ([`seal`], [`encode`]).
//!
//! A *style* ([`style`]) is everything about a JSON text that its values do not say: separators, key order, escaping, the spelling
//! of numbers and times. It is kept per row as a short text, so a sealed row is its columns plus one dictionary index.

mod binary;
mod bound;
mod column;
pub mod decode;
mod detect;
pub mod encode;
mod error;
mod escape;
mod float;
mod form;
mod program;
mod project;
mod scan;
pub mod seal;
mod sink;
pub mod style;
mod time;
mod value;

pub use decode::{JsonDecoder, MAX_ROW_ERRORS, decode_batch};
pub use encode::{EncodeError, EncodedValue, ValueEncoder};
pub use error::RowError;
pub use seal::{MAX_STYLES, SealedValues, seal_values};
pub use style::JsonStyle;

#[cfg(test)]
mod tests;

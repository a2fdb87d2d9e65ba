//! A record as it travels between the tests and this program.

use anyhow::Result;
use base64::{Engine, engine::general_purpose::STANDARD};
use rdkafka::Message;
use rdkafka::message::{BorrowedMessage, Headers};
use serde::{Deserialize, Serialize};

/// Key, value and header values are base64, or null for null.
#[derive(Serialize, Deserialize)]
pub struct WireRecord {
    pub key: Option<String>,
    pub value: Option<String>,
    pub headers: Vec<(String, Option<String>)>,
    pub timestamp: Option<i64>,
    pub partition: i32,
    #[serde(default)]
    pub offset: i64,
}

/// Decodes base64; null stays null.
pub fn bytes(text: Option<&String>) -> Result<Option<Vec<u8>>> {
    Ok(text.map(|text| STANDARD.decode(text)).transpose()?)
}

impl From<&BorrowedMessage<'_>> for WireRecord {
    fn from(message: &BorrowedMessage<'_>) -> Self {
        let headers = message.headers().map_or_else(Vec::new, |headers| {
            headers
                .iter()
                .map(|header| (header.key.to_owned(), header.value.map(|value| STANDARD.encode(value))))
                .collect()
        });
        Self {
            key: message.key().map(|key| STANDARD.encode(key)),
            value: message.payload().map(|value| STANDARD.encode(value)),
            headers,
            timestamp: message.timestamp().to_millis(),
            partition: message.partition(),
            offset: message.offset(),
        }
    }
}

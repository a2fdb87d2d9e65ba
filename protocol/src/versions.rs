//! Which versions of which APIs are served.

use crate::schema;

/// One row of the table that ApiVersions answers from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiVersion {
    /// The API key.
    pub key: i16,
    /// Kafka's name for it.
    pub name: &'static str,
    /// The lowest version advertised.
    pub min: i16,
    /// The highest version advertised and served.
    pub max: i16,
}

/// The served APIs, ascending by key.
#[derive(Debug, Clone, Copy)]
pub struct ApiVersionTable {
    rows: &'static [ApiVersion],
}

impl ApiVersionTable {
    /// A table of these rows.
    ///
    /// # Panics
    /// When rows are not ascending by key, a range is empty, or an API has no schema for the guard: all known at compile time when the table is a constant.
    #[must_use]
    pub const fn new(rows: &'static [ApiVersion]) -> Self {
        let mut index = 0;
        while index < rows.len() {
            assert!(rows[index].min <= rows[index].max, "an API is served in no version");
            assert!(index == 0 || rows[index - 1].key < rows[index].key, "API keys must ascend");
            assert!(schema::find(rows[index].key).is_some(), "an API has no schema for the guard");
            index += 1;
        }
        Self { rows }
    }

    /// All rows, ascending by key.
    #[must_use]
    pub const fn rows(&self) -> &'static [ApiVersion] {
        self.rows
    }

    /// The row of an API key, if it is served.
    #[must_use]
    pub fn get(&self, key: i16) -> Option<&'static ApiVersion> {
        self.rows.binary_search_by_key(&key, |row| row.key).ok().map(|index| &self.rows[index])
    }

    /// Whether this version of this API is served.
    #[must_use]
    pub fn serves(&self, key: i16, version: i16) -> bool {
        self.get(key).is_some_and(|row| (row.min..=row.max).contains(&version))
    }
}

/// Whether this version of this API uses compact encodings and tagged fields. False for APIs that are not known.
#[must_use]
pub fn is_flexible(key: i16, version: i16) -> bool {
    schema::find(key).is_some_and(|schema| version >= schema.first_flexible)
}

/// The key of ListOffsets.
pub const LIST_OFFSETS: i16 = 2;

/// The version whose bodies a version's bodies look like. Versions that changed only what a value may mean are newer than `kafka-protocol` knows: ListOffsets 11
/// (KIP-1023) is laid out as 10 is.
#[must_use]
pub fn layout_version(key: i16, version: i16) -> i16 {
    match key {
        LIST_OFFSETS => version.min(10),
        _ => version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: ApiVersionTable = ApiVersionTable::new(&[
        ApiVersion { key: 1, name: "Fetch", min: 4, max: 17 },
        ApiVersion { key: 18, name: "ApiVersions", min: 0, max: 4 },
    ]);

    #[test]
    fn only_versions_in_the_range_are_served() {
        assert!(TABLE.serves(1, 4) && TABLE.serves(1, 17));
        assert!(!TABLE.serves(1, 3) && !TABLE.serves(1, 18) && !TABLE.serves(2, 4) && !TABLE.serves(-1, 0));
    }

    #[test]
    fn flexibility_follows_the_schema() {
        assert!(!is_flexible(1, 11) && is_flexible(1, 12));
        assert!(!is_flexible(17, 1), "SaslHandshake never became flexible, and is not served");
    }
}

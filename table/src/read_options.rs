//! What a client asks of a read, in the grammar of DESIGN 5.1: `weir.columns=id,amount;weir.format=arrow`, carried in the client id.

use crate::schema::TableSchema;

/// The options this version answers, for messages.
const ALLOWED: &str = "weir.columns=NAME,... and weir.format=rows or weir.format=arrow";

/// In what form a read is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReadFormat {
    /// Kafka records, one per row.
    #[default]
    Rows,
    /// Kafka records whose values are Arrow IPC streams of many rows.
    Arrow,
}

/// The options of a read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ReadOptions {
    /// The columns wanted, none for all. Not yet checked against a schema: [`ReadOptions::resolve`].
    pub columns: Option<Vec<String>>,
    /// Rows or Arrow.
    pub format: ReadFormat,
}

/// Why the options were refused. Every message says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// An option of the grammar that is not built yet.
    #[error("read option {name} is not built yet: use only {ALLOWED}")]
    NotBuilt {
        /// The option.
        name: String,
    },
    /// No such option.
    #[error("read option {name} does not exist: use only {ALLOWED}")]
    Unknown {
        /// The option.
        name: String,
    },
    /// An option without `=`.
    #[error("read option {name} has no value: write {ALLOWED}")]
    NoValue {
        /// The option.
        name: String,
    },
    /// The same option twice.
    #[error("read option {name} is given twice: give it once")]
    Repeated {
        /// The option.
        name: String,
    },
    /// A format that does not exist.
    #[error("weir.format={found} is not a format: write weir.format=rows or weir.format=arrow")]
    Format {
        /// The value found.
        found: String,
    },
    /// An empty column name.
    #[error(
        "weir.columns={found} holds an empty name: write names divided by single commas, as in weir.columns=id,amount"
    )]
    EmptyColumn {
        /// The value found.
        found: String,
    },
    /// The same column twice.
    #[error("weir.columns names {column} twice: name it once")]
    RepeatedColumn {
        /// The column.
        column: String,
    },
    /// A column that the table does not have.
    #[error("the table has no column {column}:{suggestion} its columns are {known}")]
    UnknownColumn {
        /// The name asked for.
        column: String,
        /// ` did you mean X?`, or empty.
        suggestion: String,
        /// The table's columns.
        known: String,
    },
}

impl ReadOptions {
    /// Reads the options out of a client id: what follows the first `;`, option by option. `None` when it holds no `weir.` option, as any
    /// ordinary client id. Parts that do not begin with `weir.` belong to the client's own name and are left alone.
    ///
    /// # Errors
    /// [`OptionError`] for an option that is unknown, not built, repeated or without a good value: never ignored.
    pub fn from_client_id(client_id: &str) -> Result<Option<Self>, OptionError> {
        let mut options = Self::default();
        let mut seen: Vec<String> = Vec::new();
        for part in client_id.split(';') {
            let part = part.trim();
            let is_option = part.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("weir."));
            if !is_option {
                continue;
            }
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name.trim_end(), Some(value.trim())),
                None => (part, None),
            };
            let name = name.to_owned();
            match name.as_str() {
                "weir.columns" | "weir.format" => {}
                "weir.filter" | "weir.changelog" => return Err(OptionError::NotBuilt { name }),
                _ => return Err(OptionError::Unknown { name }),
            }
            if seen.contains(&name) {
                return Err(OptionError::Repeated { name });
            }
            let Some(value) = value.filter(|value| !value.is_empty()) else {
                return Err(OptionError::NoValue { name });
            };
            match (name.as_str(), value) {
                ("weir.columns", value) => options.columns = Some(column_names(value)?),
                (_, "rows") => options.format = ReadFormat::Rows,
                (_, "arrow") => options.format = ReadFormat::Arrow,
                (_, found) => return Err(OptionError::Format { found: found.to_owned() }),
            }
            seen.push(name);
        }
        Ok((!seen.is_empty()).then_some(options))
    }

    /// The indexes of the wanted columns among the table's columns, in the order asked for; `None` for all.
    ///
    /// # Errors
    /// [`OptionError::UnknownColumn`] with the names the table has.
    pub fn resolve(&self, schema: &TableSchema) -> Result<Option<Vec<usize>>, OptionError> {
        let Some(names) = &self.columns else { return Ok(None) };
        names
            .iter()
            .map(|name| schema.column_index(name).ok_or_else(|| unknown_column(name, schema)))
            .collect::<Result<_, _>>()
            .map(Some)
    }
}

fn column_names(value: &str) -> Result<Vec<String>, OptionError> {
    let mut names: Vec<String> = Vec::new();
    for name in value.split(',') {
        let name = name.trim();
        if name.is_empty() {
            return Err(OptionError::EmptyColumn { found: value.to_owned() });
        }
        if names.iter().any(|known| known == name) {
            return Err(OptionError::RepeatedColumn { column: name.to_owned() });
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

fn unknown_column(name: &str, schema: &TableSchema) -> OptionError {
    let names: Vec<&str> = schema.columns().iter().map(|column| column.name.as_str()).collect();
    let near = names
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&known.to_lowercase(), &name.to_lowercase()), *known))
        .min()
        .filter(|(distance, known)| *distance <= 2 && *distance < known.chars().count());
    OptionError::UnknownColumn {
        column: name.to_owned(),
        suggestion: near.map(|(_, known)| format!(" did you mean {known}?")).unwrap_or_default(),
        known: names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(client_id: &str) -> String {
        ReadOptions::from_client_id(client_id).expect_err("refused").to_string()
    }

    #[test]
    fn an_ordinary_client_id_asks_for_nothing() {
        for client_id in ["", "rdkafka", "a;b;c", "dash-1;x=y", "my-weir.columns=a", "weird"] {
            assert_eq!(ReadOptions::from_client_id(client_id), Ok(None), "{client_id}");
        }
    }

    #[test]
    fn columns_and_format_are_read_in_any_order_and_with_blanks() {
        let options = ReadOptions::from_client_id("dash-1; weir.format = arrow ;weir.columns=id, amount")
            .expect("good")
            .expect("some");
        assert_eq!(options.format, ReadFormat::Arrow);
        assert_eq!(options.columns, Some(vec!["id".to_owned(), "amount".to_owned()]));
        let rows = ReadOptions::from_client_id("weir.format=rows").expect("good").expect("some");
        assert_eq!(rows, ReadOptions::default());
    }

    #[test]
    fn everything_else_of_weir_is_refused_by_name() {
        for (client_id, part) in [
            ("a;weir.filter=amount > 100", "weir.filter is not built yet"),
            ("a;weir.changelog=true", "weir.changelog is not built yet"),
            ("a;weir.colums=id", "weir.colums does not exist"),
            ("a;WEIR.columns=id", "WEIR.columns does not exist"),
            ("a;weir.columns", "has no value"),
            ("a;weir.columns=", "has no value"),
            ("a;weir.columns=id,,x", "empty name"),
            ("a;weir.columns=id,id", "id twice"),
            ("a;weir.columns=id;weir.columns=x", "given twice"),
            ("a;weir.format=parquet", "weir.format=rows or weir.format=arrow"),
        ] {
            let message = refused(client_id);
            assert!(message.contains(part), "{client_id}: {message}");
        }
    }

    #[test]
    fn columns_are_resolved_or_the_known_ones_named() {
        let schema = TableSchema::parse_sql("id BIGINT, item STRING, amount DOUBLE").expect("a good schema");
        let ask = |names: &[&str]| ReadOptions {
            columns: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            format: ReadFormat::Rows,
        };
        assert_eq!(ask(&["amount", "id"]).resolve(&schema), Ok(Some(vec![2, 0])));
        assert_eq!(ReadOptions::default().resolve(&schema), Ok(None));
        let message = ask(&["Amount"]).resolve(&schema).expect_err("refused").to_string();
        assert_eq!(message, "the table has no column Amount: did you mean amount? its columns are id, item, amount");
    }
}

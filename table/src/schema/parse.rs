//! SQL columns to [`Column`]s. Words, quotes and numbers come from sqlparser's tokenizer, so identifiers follow the SQL users
//! know; the grammar above it is ours, because sqlparser 0.61 has no `MAP<K, V>` and no NOT NULL inside a STRUCT, and because a
//! parser for all of SQL cannot say which of our types was meant.

use sqlparser::dialect::GenericDialect;
use sqlparser::tokenizer::{Token, Tokenizer};

use super::SchemaError;
use super::types::{Column, ColumnType, Element, SecondFraction};

/// Bounds the recursion of every reader and writer of nested values.
const MAX_DEPTH: usize = 16;
/// Bounds what one CreateTopics request can make the broker hold.
const MAX_COLUMNS: usize = 4096;

/// Every spelling of a type, for the nearest-spelling hint.
const SPELLINGS: &[&str] = &[
    "BOOLEAN",
    "BOOL",
    "INT",
    "INTEGER",
    "BIGINT",
    "LONG",
    "FLOAT",
    "REAL",
    "DOUBLE",
    "DECIMAL",
    "NUMERIC",
    "STRING",
    "VARCHAR",
    "TEXT",
    "CHAR",
    "BINARY",
    "BYTES",
    "VARBINARY",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMPTZ",
    "TIMESTAMP_LTZ",
    "UUID",
    "ARRAY",
    "MAP",
    "STRUCT",
    "ROW",
];

pub(super) fn parse_columns(sql: &str) -> Result<Vec<Column>, SchemaError> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql)
        .tokenize()
        .map_err(|error| SchemaError::Syntax { found: error.to_string(), expected: "SQL columns" })?;
    let tokens = tokens
        .into_iter()
        .flat_map(|token| match token {
            Token::Whitespace(_) => vec![],
            // `ARRAY<ARRAY<INT>>`: the tokenizer reads a shift.
            Token::ShiftRight => vec![Token::Gt, Token::Gt],
            // `STRUCT<>`: and an inequality.
            Token::Neq => vec![Token::Lt, Token::Gt],
            other => vec![other],
        })
        .collect();
    let mut parser = Parser { tokens, at: 0, columns: 0 };
    if parser.peek() == &Token::EOF {
        return Err(SchemaError::Empty);
    }
    if parser.is_word("CREATE") && matches!(parser.tokens.get(1), Some(token) if is_word(token, "TABLE")) {
        return Err(SchemaError::Statement);
    }
    let columns = parser.columns("", 0, &Token::EOF)?;
    check_characters(&columns)?;
    if let Some(column) = columns.iter().find(|column| column.name.starts_with('_')) {
        let bare = column.name.trim_start_matches('_');
        let instead = if bare.is_empty() { "a" } else { bare }.to_owned();
        return Err(SchemaError::ReservedName { name: column.name.clone(), instead });
    }
    Ok(columns)
}

/// Iceberg knows nested fields by dotted paths, and `weir.columns` lists names between commas in a client id.
fn check_characters(columns: &[Column]) -> Result<(), SchemaError> {
    for column in columns {
        if column.name.contains(['.', ',', ';', '=']) {
            return Err(SchemaError::NameCharacter { name: column.name.clone() });
        }
        check_nested(&column.data_type)?;
    }
    Ok(())
}

fn check_nested(data_type: &ColumnType) -> Result<(), SchemaError> {
    match data_type {
        ColumnType::Struct(columns) => check_characters(columns),
        ColumnType::Array(element) | ColumnType::Map(element) => check_nested(&element.data_type),
        _ => Ok(()),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    columns: usize,
}

impl Parser {
    /// `name type [NOT NULL], ...` up to `end`, which is consumed.
    fn columns(&mut self, path: &str, depth: usize, end: &Token) -> Result<Vec<Column>, SchemaError> {
        let mut columns: Vec<Column> = Vec::new();
        loop {
            let name = self.name()?;
            if columns.iter().any(|column| column.name.to_lowercase() == name.to_lowercase()) {
                return Err(SchemaError::DuplicateColumn { name });
            }
            self.columns += 1;
            if self.columns > MAX_COLUMNS {
                return Err(SchemaError::TooManyColumns { limit: MAX_COLUMNS });
            }
            let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            // BigQuery writes `STRUCT<a INT>`, Hive and Spark `STRUCT<a: INT>`.
            if depth > 0 {
                self.eat(&Token::Colon);
            }
            let data_type = self.data_type(&full, depth)?;
            let nullable = self.nullability(&full)?;
            columns.push(Column { name, data_type, nullable });
            if self.eat(&Token::Comma) {
                continue;
            }
            if self.eat(end) || (end == &Token::EOF && self.peek() == &Token::EOF) {
                return Ok(columns);
            }
            return Err(self.after_column(&full));
        }
    }

    fn name(&mut self) -> Result<String, SchemaError> {
        match self.next() {
            Token::Word(word) if word.value.is_empty() => Err(SchemaError::EmptyName),
            Token::Word(word) => Ok(word.value),
            Token::DoubleQuotedString(name) if name.is_empty() => Err(SchemaError::EmptyName),
            Token::DoubleQuotedString(name) => Ok(name),
            other => Err(syntax(&other, "a column name")),
        }
    }

    fn data_type(&mut self, column: &str, depth: usize) -> Result<ColumnType, SchemaError> {
        if depth >= MAX_DEPTH {
            return Err(SchemaError::TooDeep { column: column.to_owned(), limit: MAX_DEPTH });
        }
        let word = match self.next() {
            Token::Word(word) if word.quote_style.is_none() => word.value,
            other => return Err(syntax(&other, "a type")),
        };
        let type_name = word.to_ascii_uppercase();
        let simple = match type_name.as_str() {
            "BOOLEAN" | "BOOL" => ColumnType::Boolean,
            "INT" | "INTEGER" => ColumnType::Int,
            "BIGINT" | "LONG" => ColumnType::BigInt,
            "FLOAT" | "REAL" => ColumnType::Float,
            "DOUBLE" => {
                self.eat_word("PRECISION");
                ColumnType::Double
            }
            "DECIMAL" | "NUMERIC" => return self.decimal(column),
            "STRING" | "TEXT" => ColumnType::String,
            "VARCHAR" | "CHAR" => {
                return if self.peek() == &Token::LParen {
                    // A length nobody checks would be a promise not kept.
                    Err(SchemaError::Parameter { column: column.to_owned(), type_name: "STRING".to_owned() })
                } else {
                    Ok(ColumnType::String)
                };
            }
            "BINARY" | "BYTES" | "VARBINARY" => ColumnType::Binary,
            "DATE" => ColumnType::Date,
            "TIME" => ColumnType::Time,
            "TIMESTAMP" => return self.timestamp(column),
            "TIMESTAMPTZ" | "TIMESTAMP_LTZ" => {
                return Ok(ColumnType::TimestampTz(self.second_fraction(column, &type_name)?));
            }
            "UUID" => ColumnType::Uuid,
            "ARRAY" => return self.array(column, depth),
            "MAP" => return self.map(column, depth),
            "STRUCT" | "ROW" => {
                self.expect(&Token::Lt, "`<` and fields, as in STRUCT<a INT>")?;
                return Ok(ColumnType::Struct(self.columns(column, depth + 1, &Token::Gt)?));
            }
            _ => {
                return Err(SchemaError::UnknownType {
                    column: column.to_owned(),
                    suggestion: nearest(&type_name),
                    found: word,
                });
            }
        };
        if self.peek() == &Token::LParen {
            return Err(SchemaError::Parameter { column: column.to_owned(), type_name: simple.to_string() });
        }
        Ok(simple)
    }

    fn decimal(&mut self, column: &str) -> Result<ColumnType, SchemaError> {
        let wrong = || SchemaError::Decimal { column: column.to_owned() };
        if !self.eat(&Token::LParen) {
            return Err(wrong());
        }
        let precision: u8 = self.number().ok_or_else(wrong)?;
        let scale: u8 = if self.eat(&Token::Comma) { self.number().ok_or_else(wrong)? } else { 0 };
        if !self.eat(&Token::RParen) || precision == 0 || precision > 38 || scale > precision {
            return Err(wrong());
        }
        Ok(ColumnType::Decimal { precision, scale })
    }

    fn timestamp(&mut self, column: &str) -> Result<ColumnType, SchemaError> {
        let fraction = self.second_fraction(column, "TIMESTAMP")?;
        let zoned = if self.eat_word("WITH") {
            // Flink: TIMESTAMP WITH LOCAL TIME ZONE.
            self.eat_word("LOCAL");
            true
        } else if self.eat_word("WITHOUT") {
            false
        } else {
            return Ok(ColumnType::Timestamp(fraction));
        };
        if !(self.eat_word("TIME") && self.eat_word("ZONE")) {
            let found = self.next();
            return Err(syntax(&found, "TIME ZONE"));
        }
        Ok(if zoned { ColumnType::TimestampTz(fraction) } else { ColumnType::Timestamp(fraction) })
    }

    fn second_fraction(&mut self, column: &str, type_name: &str) -> Result<SecondFraction, SchemaError> {
        if !self.eat(&Token::LParen) {
            return Ok(SecondFraction::Micros);
        }
        let digits: Option<u8> = self.number();
        match (digits, self.eat(&Token::RParen)) {
            (Some(3), true) => Ok(SecondFraction::Millis),
            (Some(6), true) => Ok(SecondFraction::Micros),
            _ => Err(SchemaError::SecondFraction { column: column.to_owned(), type_name: type_name.to_owned() }),
        }
    }

    fn array(&mut self, column: &str, depth: usize) -> Result<ColumnType, SchemaError> {
        self.expect(&Token::Lt, "`<` and a type, as in ARRAY<STRING>")?;
        let element = self.element(column, depth)?;
        self.expect(&Token::Gt, "`>`")?;
        Ok(ColumnType::Array(Box::new(element)))
    }

    fn map(&mut self, column: &str, depth: usize) -> Result<ColumnType, SchemaError> {
        self.expect(&Token::Lt, "`<` and two types, as in MAP<STRING, INT>")?;
        let key = self.element(column, depth)?;
        if key.data_type != ColumnType::String {
            return Err(SchemaError::MapKey { column: column.to_owned() });
        }
        self.expect(&Token::Comma, "`,` and the type of the values, as in MAP<STRING, INT>")?;
        let value = self.element(column, depth)?;
        self.expect(&Token::Gt, "`>`")?;
        Ok(ColumnType::Map(Box::new(value)))
    }

    fn element(&mut self, column: &str, depth: usize) -> Result<Element, SchemaError> {
        let data_type = self.data_type(column, depth + 1)?;
        let nullable = self.nullability(column)?;
        Ok(Element { data_type, nullable })
    }

    fn nullability(&mut self, column: &str) -> Result<bool, SchemaError> {
        if self.eat_word("NULL") {
            return Ok(true);
        }
        if !self.eat_word("NOT") {
            return Ok(true);
        }
        if self.eat_word("NULL") {
            return Ok(false);
        }
        let found = self.next();
        Err(SchemaError::Clause {
            column: column.to_owned(),
            clause: format!("NOT {found}"),
            instead: "write NOT NULL",
        })
    }

    /// Something follows a column that is neither a comma nor the end.
    fn after_column(&mut self, column: &str) -> SchemaError {
        let found = self.next();
        let Token::Word(word) = &found else { return syntax(&found, "`,` and another column, or the end") };
        let instead = match word.value.to_ascii_uppercase().as_str() {
            "PRIMARY" | "KEY" => "name the key in weir.primary.key",
            "DEFAULT" => "let the producer write the value, or let the column be null",
            "COMMENT" => "leave it out",
            "UNIQUE" | "CHECK" | "REFERENCES" | "GENERATED" | "CONSTRAINT" => "leave it out, only NOT NULL is checked",
            "UNSIGNED" => "use the next larger signed type, such as BIGINT or DECIMAL(20,0)",
            _ => "separate columns by commas; after the type only NOT NULL may follow",
        };
        SchemaError::Clause { column: column.to_owned(), clause: word.value.clone(), instead }
    }

    fn number(&mut self) -> Option<u8> {
        match self.next() {
            Token::Number(text, false) => text.parse().ok(),
            _ => None,
        }
    }

    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::EOF)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn eat(&mut self, token: &Token) -> bool {
        let found = self.at < self.tokens.len() && self.peek() == token;
        self.at += usize::from(found);
        found
    }

    fn is_word(&self, word: &str) -> bool {
        is_word(self.peek(), word)
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, token: &Token, expected: &'static str) -> Result<(), SchemaError> {
        if self.eat(token) { Ok(()) } else { Err(syntax(&self.next(), expected)) }
    }
}

fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

fn syntax(found: &Token, expected: &'static str) -> SchemaError {
    let found = if found == &Token::EOF { "the end".to_owned() } else { format!("`{found}`") };
    SchemaError::Syntax { found, expected }
}

/// ` did you mean X?` for a slip of the finger or a type we know under another name.
fn nearest(found: &str) -> String {
    let other_name = match found {
        "SMALLINT" | "TINYINT" | "INT2" | "INT4" | "INT32" | "SHORT" | "BYTE" => Some("INT"),
        "INT8" | "INT64" => Some("BIGINT"),
        "FLOAT4" | "FLOAT32" => Some("FLOAT"),
        "FLOAT8" | "FLOAT64" => Some("DOUBLE"),
        "NUMBER" | "MONEY" => Some("DECIMAL"),
        "DATETIME" => Some("TIMESTAMP"),
        "BLOB" | "BYTEA" => Some("BINARY"),
        "NVARCHAR" | "UTF8" => Some("STRING"),
        "LIST" => Some("ARRAY"),
        "JSON" | "OBJECT" | "VARIANT" => Some("STRUCT"),
        _ => None,
    };
    let near = || {
        let (distance, spelling) =
            SPELLINGS.iter().map(|spelling| (strsim::damerau_levenshtein(found, spelling), *spelling)).min()?;
        (distance <= 2 && distance < found.len()).then_some(spelling)
    };
    other_name.or_else(near).map(|spelling| format!(" did you mean {spelling}?")).unwrap_or_default()
}

//! One row of a config table.

use super::ConfigError;

/// Kafka's config types; the discriminant is the code DescribeConfigs v3+ answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum ConfigType {
    /// `true` or `false`.
    Boolean = 1,
    /// Any text.
    String = 2,
    /// A 32-bit integer.
    Int = 3,
    /// A 64-bit integer.
    Long = 5,
    /// A floating-point number.
    Double = 6,
    /// Comma-separated values; IncrementalAlterConfigs may append to and subtract from it.
    List = 7,
}

impl ConfigType {
    /// The code of this type on the wire.
    pub fn code(self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::String => 2,
            Self::Int => 3,
            Self::Long => 5,
            Self::Double => 6,
            Self::List => 7,
        }
    }

    /// What a person should write, for messages.
    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::Boolean => "true or false",
            Self::String => "a text",
            Self::Int => "a 32-bit integer",
            Self::Long => "a 64-bit integer",
            Self::Double => "a number",
            Self::List => "a comma-separated list",
        }
    }
}

/// Inclusive bounds of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Smallest legal value.
    pub min: i64,
    /// Largest legal value.
    pub max: i64,
}

/// One legal value of a config with a fixed set of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// How it is written.
    pub text: &'static str,
    /// Whether the behaviour exists; a choice that is not built is refused by name.
    pub built: bool,
}

/// What Weir does with a config that it accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The value decides something.
    Honoured,
    /// Accepted and shown, decides nothing: what it tunes has no counterpart here, or any value of it is kept to
    /// anyway. Accepted because stock tools set it on topics they create.
    Hint,
    /// Only the default is accepted, since another value would promise a behaviour that does not exist.
    DefaultOnly,
}

/// When a change of a config takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateMode {
    /// Fixed once set: for a broker config until its next start, for a topic config from creation on.
    ReadOnly,
    /// At once.
    Dynamic,
}

/// One config: everything that is known about it besides its current value.
#[derive(Debug, Clone, Copy)]
pub struct ConfigDef {
    /// Kafka's name where Kafka has one; `weir.` otherwise.
    pub name: &'static str,
    /// The default, as a user would write it.
    pub default: &'static str,
    /// Kafka's type.
    pub kind: ConfigType,
    /// Bounds of a number.
    pub bounds: Option<Bounds>,
    /// The fixed set of values, or empty when free.
    pub choices: &'static [Choice],
    /// Of a topic config: the broker configs that set its default, strongest first. Of a broker config: those that say the same
    /// in another unit, where it is not set.
    pub synonyms: &'static [&'static str],
    /// Whether the value decides something.
    pub standing: Standing,
    /// When a change takes effect.
    pub update: UpdateMode,
    /// Whether the default stands for "not set", which DescribeConfigs shows as null.
    pub unset: bool,
    /// A secret: never shown by DescribeConfigs or logs.
    pub sensitive: bool,
    /// What it does, for DescribeConfigs v3+ and the docs. May start with a space (it comes from a doc comment).
    pub doc: &'static str,
}

impl ConfigDef {
    /// A dynamic, honoured, free-form config; the `configs!` macro adds type, choices and text.
    pub(super) const fn new(name: &'static str, default: &'static str) -> Self {
        Self {
            name,
            default,
            kind: ConfigType::String,
            bounds: None,
            choices: &[],
            synonyms: &[],
            standing: Standing::Honoured,
            update: UpdateMode::Dynamic,
            unset: false,
            sensitive: false,
            doc: "",
        }
    }

    pub(super) const fn at_least(mut self, min: i64) -> Self {
        self.bounds = Some(Bounds { min, max: i64::MAX });
        self
    }

    pub(super) const fn between(mut self, min: i64, max: i64) -> Self {
        self.bounds = Some(Bounds { min, max });
        self
    }

    pub(super) const fn synonyms(mut self, names: &'static [&'static str]) -> Self {
        self.synonyms = names;
        self
    }

    pub(super) const fn hint(mut self) -> Self {
        self.standing = Standing::Hint;
        self
    }

    pub(super) const fn default_only(mut self) -> Self {
        self.standing = Standing::DefaultOnly;
        self
    }

    pub(super) const fn read_only(mut self) -> Self {
        self.update = UpdateMode::ReadOnly;
        self
    }

    pub(super) const fn unset(mut self) -> Self {
        self.unset = true;
        self
    }

    pub(super) const fn typed(mut self, kind: ConfigType, choices: &'static [Choice], doc: &'static str) -> Self {
        self.kind = kind;
        self.choices = choices;
        self.doc = doc;
        self
    }

    /// The row of `name` in `table`.
    pub fn find(table: &'static [ConfigDef], name: &str) -> Option<&'static ConfigDef> {
        table.iter().find(|def| def.name == name)
    }

    /// The text of this config without the space a doc comment starts its lines with.
    pub fn text(&self) -> String {
        self.doc.lines().map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned()
    }

    /// Checks one value against this row: type, choices, bounds, standing.
    ///
    /// # Errors
    /// The first rule the value breaks, see [`ConfigError`].
    pub fn check(&self, value: &str) -> Result<(), ConfigError> {
        let value = value.trim();
        self.check_type(value)?;
        self.check_choices(value)?;
        if self.standing == Standing::DefaultOnly && value != self.default {
            return Err(ConfigError::OnlyDefault { name: self.name, value: value.to_owned(), default: self.default });
        }
        Ok(())
    }

    fn check_type(&self, value: &str) -> Result<(), ConfigError> {
        let number = match self.kind {
            ConfigType::String | ConfigType::List => return Ok(()),
            ConfigType::Boolean => {
                return if matches!(value.to_ascii_lowercase().as_str(), "true" | "false") {
                    Ok(())
                } else {
                    Err(self.wrong_type(value))
                };
            }
            ConfigType::Int => value.parse::<i32>().map(f64::from).map_err(|_| self.wrong_type(value))?,
            ConfigType::Long => {
                let number = value.parse::<i64>().map_err(|_| self.wrong_type(value))?;
                return match self.bounds {
                    Some(bounds) if number < bounds.min || number > bounds.max => Err(self.out_of_range(value, bounds)),
                    _ => Ok(()),
                };
            }
            ConfigType::Double => {
                value.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(|| self.wrong_type(value))?
            }
        };
        match self.bounds {
            Some(bounds) if number < bounds.min as f64 || number > bounds.max as f64 => {
                Err(self.out_of_range(value, bounds))
            }
            _ => Ok(()),
        }
    }

    fn check_choices(&self, value: &str) -> Result<(), ConfigError> {
        if self.choices.is_empty() {
            return Ok(());
        }
        let parts: Vec<&str> = match self.kind {
            ConfigType::List => value.split(',').map(str::trim).filter(|_| !value.is_empty()).collect(),
            _ => vec![value],
        };
        for part in parts {
            match self.choices.iter().find(|choice| choice.text == part) {
                Some(choice) if choice.built => {}
                Some(_) => {
                    return Err(ConfigError::ValueNotBuilt {
                        name: self.name,
                        value: part.to_owned(),
                        built: self.built_choices(),
                    });
                }
                None => {
                    return Err(ConfigError::NotAChoice {
                        name: self.name,
                        value: part.to_owned(),
                        choices: self.built_choices(),
                    });
                }
            }
        }
        Ok(())
    }

    fn built_choices(&self) -> String {
        let built: Vec<&str> = self.choices.iter().filter(|choice| choice.built).map(|choice| choice.text).collect();
        built.join(", ")
    }

    fn wrong_type(&self, value: &str) -> ConfigError {
        ConfigError::WrongType { name: self.name, value: value.to_owned(), expected: self.kind.expected() }
    }

    fn out_of_range(&self, value: &str, bounds: Bounds) -> ConfigError {
        ConfigError::OutOfRange { name: self.name, value: value.to_owned(), min: bounds.min, max: bounds.max }
    }
}

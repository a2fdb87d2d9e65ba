//! The two macros that keep a config's row and its typed field one thing.

/// Declares a table of configs and the struct of their typed values, one line each.
///
/// `field: Type = ConfigDef::new("name", "default")...;` with the doc comment as the config's text. The struct gets
/// `parse(lookup)`, which reads each field through `lookup(def)` and checks it.
macro_rules! configs {
    (
        $(#[$struct_meta:meta])*
        pub struct $struct:ident, table $(#[$table_meta:meta])* $table:ident {
            $( $(#[doc = $doc:literal])+ $field:ident: $ty:ty = $def:expr; )+
        }
    ) => {
        $(#[$table_meta])*
        pub static $table: &[$crate::config::ConfigDef] = &[
            $( $def.typed(
                <$ty as $crate::config::ConfigValue>::TYPE,
                <$ty as $crate::config::ConfigValue>::CHOICES,
                concat!($($doc, "\n"),+),
            ), )+
        ];

        $(#[$struct_meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $struct {
            $( $(#[doc = $doc])+ pub $field: $ty, )+
            given: std::collections::BTreeMap<String, String>,
        }

        impl $struct {
            /// Reads each value as text from `lookup`, checks it against its row, and types it.
            fn parse(
                given: &std::collections::BTreeMap<String, String>,
                lookup: impl Fn(&'static $crate::config::ConfigDef) -> String,
            ) -> Result<Self, $crate::config::ConfigError> {
                let mut rows = $table.iter();
                $(
                    let def = rows.next().expect("the table has one row per field");
                    let text = lookup(def);
                    def.check(&text)?;
                    let $field = <$ty as $crate::config::ConfigValue>::parse(text.trim()).ok_or_else(|| {
                        $crate::config::ConfigError::WrongType {
                            name: def.name,
                            value: text.clone(),
                            expected: def.kind.expected(),
                        }
                    })?;
                )+
                Ok(Self { $( $field, )+ given: given.clone() })
            }

            /// Every value in the order of the table, as text.
            pub fn values(&self) -> Vec<(&'static $crate::config::ConfigDef, String)> {
                let mut rows = $table.iter();
                vec![
                    $( (
                        rows.next().expect("the table has one row per field"),
                        $crate::config::ConfigValue::text(&self.$field),
                    ), )+
                ]
            }

            /// What was set explicitly, by name.
            pub fn given(&self) -> &std::collections::BTreeMap<String, String> {
                &self.given
            }
        }
    };
}

/// Declares an enum of config values: `Variant = "text"`, with `not built` for the words refused by name.
macro_rules! choices {
    (
        $(#[$meta:meta])*
        pub enum $enum:ident { $( $(#[$variant_meta:meta])* $variant:ident = $text:literal, )+ }
        $(not built: $($reserved:literal),+ $(,)?)?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $enum { $( $(#[$variant_meta])* $variant, )+ }

        impl $enum {
            /// The word a user writes.
            pub fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $text, )+ }
            }
        }

        impl $crate::config::ConfigValue for $enum {
            const TYPE: $crate::config::ConfigType = $crate::config::ConfigType::String;
            const CHOICES: &'static [$crate::config::Choice] = &[
                $( $crate::config::Choice { text: $text, built: true }, )+
                $( $( $crate::config::Choice { text: $reserved, built: false }, )+ )?
            ];
            fn parse(text: &str) -> Option<Self> {
                match text { $( $text => Some(Self::$variant), )+ _ => None }
            }
            fn text(&self) -> String {
                self.as_str().to_owned()
            }
        }
    };
}

pub(super) use {choices, configs};

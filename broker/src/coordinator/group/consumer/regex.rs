//! Regular expressions in RE2 syntax, as Kafka takes them (KIP-848), matched against whole topic names.
//!
//! The `regex` crate descends from RE2: the same automata, the same time bound, no look-around and no back-references. Where
//! its syntax says something else than RE2's, the pattern is rewritten first: quoted stretches (`\Q...\E`), and inside a
//! class `[`, `&&`, `--` and `~~`, which RE2 reads as plain characters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::assignment::TopicCatalog;

/// Longest pattern that is compiled, in bytes.
const MAX_PATTERN_BYTES: usize = 4_096;
/// Memory that a compiled pattern, and the matcher's cache, may take. RE2's own limit on the product of repetitions is 1,000.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// Compiles `pattern` to match a whole name; `None` when it is not RE2 or beyond the limits.
pub(super) fn compile(pattern: &str) -> Option<Regex> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return None;
    }
    let pattern = to_regex_crate(pattern);
    // The pattern alone first: "a)(b" must not become right by what is put around it.
    let build =
        |text: &str| RegexBuilder::new(text).size_limit(MAX_COMPILED_BYTES).dfa_size_limit(MAX_COMPILED_BYTES).build();
    build(&pattern).ok()?;
    build(&format!(r"\A(?:{pattern})\z")).ok()
}

/// Whether `pattern` may be subscribed to.
pub(super) fn is_valid(pattern: &str) -> bool {
    compile(pattern).is_some()
}

/// What each of `patterns` matches now. Time grows with topics times patterns: not for the network threads.
pub fn resolve(patterns: &BTreeSet<Arc<str>>, catalog: &dyn TopicCatalog) -> BTreeMap<Arc<str>, BTreeSet<Arc<str>>> {
    let names = catalog.names();
    patterns
        .iter()
        .map(|pattern| {
            let matches = match compile(pattern) {
                Some(regex) => names.iter().filter(|name| regex.is_match(name)).cloned().collect(),
                // A record of a broker that took it; it matches nothing here.
                None => BTreeSet::new(),
            };
            (pattern.clone(), matches)
        })
        .collect()
}

fn to_regex_crate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    let mut class = Class::Outside;
    while let Some(next) = rest.chars().next() {
        let mut taken = next.len_utf8();
        if let Some(quoted) = rest.strip_prefix(r"\Q").filter(|_| class == Class::Outside) {
            let (literal, size) = match quoted.find(r"\E") {
                Some(end) => (&quoted[..end], 2 + end + 2),
                None => (quoted, rest.len()),
            };
            out.push_str(&regex::escape(literal));
            taken = size;
        } else if next == '\\' {
            taken += rest[1..].chars().next().map_or(0, char::len_utf8);
            out.push_str(&rest[..taken]);
            class = class.after_element();
        } else if class == Class::Outside {
            if next == '[' {
                class = Class::Start;
            }
            out.push(next);
        } else {
            match next {
                '^' if class == Class::Start => {
                    class = Class::StartNegated;
                    out.push(next);
                }
                // First in the class it is a plain character.
                ']' if matches!(class, Class::Start | Class::StartNegated) => {
                    class = Class::Inside;
                    out.push_str(r"\]");
                }
                ']' => {
                    class = Class::Outside;
                    out.push(next);
                }
                '[' => match rest.strip_prefix("[:").and_then(|named| named.find(":]")) {
                    Some(end) => {
                        taken = 2 + end + 2;
                        out.push_str(&rest[..taken]);
                        class = Class::Inside;
                    }
                    None => {
                        out.push_str(r"\[");
                        class = Class::Inside;
                    }
                },
                '&' | '~' => {
                    out.push('\\');
                    out.push(next);
                    class = Class::Inside;
                }
                '-' if rest.starts_with("--") => {
                    out.push_str(r"\-");
                    class = Class::Inside;
                }
                _ => {
                    out.push(next);
                    class = Class::Inside;
                }
            }
        }
        rest = &rest[taken..];
    }
    out
}

/// Where the rewriting is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Outside,
    /// Right after `[`.
    Start,
    /// Right after `[^`.
    StartNegated,
    Inside,
}

impl Class {
    fn after_element(self) -> Self {
        match self {
            Self::Outside => Self::Outside,
            Self::Start | Self::StartNegated | Self::Inside => Self::Inside,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        compile(pattern).unwrap_or_else(|| panic!("{pattern} is RE2")).is_match(name)
    }

    #[test]
    fn a_pattern_matches_whole_names_only() {
        assert!(matches("orders", "orders"));
        assert!(!matches("orders", "orders-eu") && !matches("rder", "orders"));
        assert!(matches("a|ab", "ab"), "the whole pattern is anchored, not its first branch");
        assert!(matches("^orders.*$", "orders-eu"));
        assert!(matches("(?i)ORDERS", "orders"));
    }

    #[test]
    fn re2_reads_class_operators_and_quotes_as_characters() {
        assert!(matches(r"\Qa.b\E-.*", "a.b-c") && !matches(r"\Qa.b\E-.*", "axb-c"));
        assert!(matches(r"\Qa.b", "a.b"));
        assert!(matches("[a&&b]+", "a&b"));
        assert!(matches("[[a]", "[") && matches("[[a]", "a"));
        assert!(matches("[]a]+", "]a") && matches("[^]]", "a"));
        assert!(matches("[[:alpha:]]+", "abc") && !matches("[[:alpha:]]+", "ab1"));
        assert!(matches(r"[\w.-]+", "a.b-c_1"));
        assert!(matches("[a~~b]+", "a~b"));
    }

    #[test]
    fn what_is_not_re2_is_refused() {
        for bad in ["(", "a)(b", "[", "*", "(?=a)", "(?!a)", r"(a)\1", r"\p{nope}", "a{1001}{1001}{1001}"] {
            assert!(!is_valid(bad), "{bad}");
        }
        assert!(!is_valid(&"a".repeat(MAX_PATTERN_BYTES + 1)));
    }
}

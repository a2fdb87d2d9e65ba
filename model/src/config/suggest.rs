//! The config a person probably meant.

use super::ConfigDef;

/// The name in `table` nearest to `given`, when it is near enough to be a slip: a third of its letters at most, or the
/// topic config whose broker synonym was written.
pub(super) fn nearest(
    table: &'static [ConfigDef],
    extra: &'static [&'static str],
    given: &str,
) -> Option<&'static str> {
    if let Some(def) = table.iter().find(|def| def.synonyms.contains(&given)) {
        return Some(def.name);
    }
    let given = given.trim().to_ascii_lowercase().replace('_', ".");
    table
        .iter()
        .map(|def| def.name)
        .chain(extra.iter().copied())
        .map(|name| (distance(&given, name), name))
        .filter(|(distance, name)| *distance <= name.len().max(given.len()) / 3)
        .min()
        .map(|(_, name)| name)
}

/// Levenshtein distance in bytes; the names are ASCII.
fn distance(left: &str, right: &str) -> usize {
    // A hostile name is cut: beyond this length nothing is near anyway.
    let left = &left.as_bytes()[..left.len().min(128)];
    let right = right.as_bytes();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, r) in right.iter().enumerate() {
            let substitute = diagonal + usize::from(l != r);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

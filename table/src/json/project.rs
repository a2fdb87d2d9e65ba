//! Choosing members of a JSON object that is kept as bytes.

use super::error::Checked;
use super::scan::Scanner;

/// Appends the object with only the wanted members, each byte for byte and in the row's own order. They are joined by what joins the
/// first two members of the row, so a regular row looks as its producer would have written it.
pub(super) fn copy_members(value: &[u8], wanted: impl Fn(&[u8]) -> bool, out: &mut Vec<u8>) -> Checked<()> {
    let mut scanner = Scanner::new(value);
    let mut scratch = Vec::new();
    let mut separator: Option<&[u8]> = None;
    let mut chosen: Vec<&[u8]> = Vec::new();
    scanner.skip_ws();
    scanner.expect(b'{', "a JSON object")?;
    scanner.skip_ws();
    let opening = scanner.since(0);
    let mut closing_start = scanner.position();
    if !scanner.eat(b'}') {
        loop {
            let start = scanner.position();
            let is_wanted = match scanner.text(&mut scratch) {
                Ok(key) => wanted(key),
                // Half a surrogate pair: a key, but of no column.
                Err(_) => {
                    scanner.rewind(start);
                    scanner.skip_string()?;
                    false
                }
            };
            scanner.skip_ws();
            scanner.expect(b':', "`:` after a key")?;
            scanner.skip_ws();
            scanner.skip_value()?;
            if is_wanted {
                chosen.push(scanner.since(start));
            }
            closing_start = scanner.position();
            scanner.skip_ws();
            if scanner.eat(b'}') {
                break;
            }
            scanner.expect(b',', "`,` or `}`")?;
            scanner.skip_ws();
            separator.get_or_insert(scanner.since(closing_start));
        }
    }
    scanner.end()?;
    out.extend_from_slice(opening);
    for (index, member) in chosen.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(separator.unwrap_or(b","));
        }
        out.extend_from_slice(member);
    }
    out.extend_from_slice(scanner.since(closing_start));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(value: &str, names: &[&str]) -> String {
        let mut out = Vec::new();
        copy_members(value.as_bytes(), |key| names.iter().any(|name| name.as_bytes() == key), &mut out)
            .expect("a good row");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn members_keep_their_bytes_and_their_order() {
        let row = r#"{"b": 1.50, "\u0061": {"x":[1, 2]}, "c" : null}"#;
        assert_eq!(chosen(row, &["a", "b"]), r#"{"b": 1.50, "\u0061": {"x":[1, 2]}}"#);
        assert_eq!(chosen(row, &["c", "b"]), r#"{"b": 1.50, "c" : null}"#);
        assert_eq!(chosen(row, &[]), "{}");
        assert_eq!(chosen("{ \"a\":1,\n \"b\":2 }\n", &["b"]), "{ \"b\":2 }\n");
        assert_eq!(chosen("{}", &["b"]), "{}");
    }
}

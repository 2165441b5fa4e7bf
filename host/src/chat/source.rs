//! What a template's text needs before it is compiled.

/// `source` with the tags `{% generation %}` and `{% endgeneration %}`, which mark what is
/// trained on, as a block that always applies: whitespace around them is treated alike.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let length = match replaced(tag) {
            Some((block, length)) => {
                out.push_str(&block);
                length
            }
            None => {
                out.push_str("{%");
                2
            }
        };
        rest = tag.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// The block for a generation tag at the start of `tag`, and the length of that tag.
fn replaced(tag: &str) -> Option<(String, usize)> {
    let end = tag.find("%}")?;
    let inner = tag.get(2..end)?;
    let (open, inner) = sign(inner, inner.chars().next());
    let word = inner.trim_end_matches(['-', '+']);
    let close = inner.get(word.len()..)?;
    let statement = match word.trim() {
        "generation" => "if true",
        "endgeneration" => "endif",
        _ => return None,
    };
    Some((format!("{{%{open} {statement} {close}%}}"), end + 2))
}

/// The sign of whitespace control that `inner` begins with, and what follows it.
fn sign(inner: &str, first: Option<char>) -> (&str, &str) {
    match first {
        Some('-' | '+') => inner.split_at(1),
        _ => ("", inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_become_blocks_with_the_same_signs() {
        let cases = [
            (
                "{% generation %}x{% endgeneration %}",
                "{% if true %}x{% endif %}",
            ),
            (
                "{%- generation -%}x{%-endgeneration+%}",
                "{%- if true -%}x{%- endif +%}",
            ),
            (
                "{% if generation %}{{ '{%' }}{% x",
                "{% if generation %}{{ '{%' }}{% x",
            ),
            ("{%%}é{%", "{%%}é{%"),
        ];
        for (source, expected) in cases {
            assert_eq!(without_generation_tags(source), expected);
        }
    }
}

//! Reads the little of XML that the pictures use, and no more.

/// The contents of all elements without children, unescaped.
///
/// # Panics
/// Where an element is not closed, an attribute not quoted, or a character not escaped.
pub(crate) fn texts(xml: &str) -> Vec<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut texts = Vec::new();
    let mut rest = xml;
    while let Some(begin) = rest.find('<') {
        let text = &rest[..begin];
        assert!(!text.contains('>'), "stray > in {text}");
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[begin + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed out of order");
            texts.push(unescaped(text));
            continue;
        }
        let (name, attributes) = tag.trim_end_matches('/').split_once(' ').unwrap_or((tag, ""));
        check_attributes(attributes);
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert_eq!(open, [] as [&str; 0], "never closed");
    assert_eq!(rest.trim(), "", "behind the root");
    texts
}

fn check_attributes(attributes: &str) {
    let mut rest = attributes.trim();
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").expect("an attribute has a quoted value");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "-:".contains(c)), "attribute {name}");
        let (value, after) = value.split_once('"').expect("a value ends");
        assert!(!value.contains("NaN") && !value.contains("inf"), "{name} is {value}");
        rest = after.trim_start();
    }
}

fn unescaped(text: &str) -> String {
    for part in text.split('&').skip(1) {
        assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|entity| part.starts_with(entity)), "&{part}");
    }
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

//! Names of files and layers as text: what a terminal would act on is shown, not sent.

use std::borrow::Cow;
use std::fmt::{Display, Write};
use std::path::Path;

use serde_json::ser::Formatter;

/// The text with every character that moves the cursor, ends the line, reorders or hides text as `\u{…}`, or `\n`, `\r`
/// and `\t`.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_active) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_active(character) {
            let code = u32::from(character);
            let _ = match character {
                '\n' | '\r' | '\t' => write!(shown, "{}", character.escape_default()),
                _ => write!(shown, "\\u{{{code:x}}}"),
            };
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// The same for text of many lines, whose ends stay.
pub(crate) fn escape_lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|character| character != '\n' && is_active(character)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split('\n').map(escape).collect::<Vec<_>>().join("\n"))
}

/// JSON whose strings are escaped alike, with JSON's own `\uXXXX`: outside of strings it has none of these characters but
/// ends of lines.
pub(crate) fn escape_json(json: &str) -> String {
    let mut bytes = Vec::with_capacity(json.len());
    for line in json.split_inclusive('\n') {
        let text = line.strip_suffix('\n').unwrap_or(line);
        // memory takes everything
        let _ = EscapedJson.write_string_fragment(&mut bytes, text);
        bytes.extend_from_slice(&line.as_bytes()[text.len()..]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A path, between backquotes as in all messages.
pub(crate) fn quoted(path: &Path) -> String {
    format!("`{}`", escape(&path.display().to_string()))
}

/// What a message says, on one line.
pub(crate) fn one_line(message: &(impl Display + ?Sized)) -> String {
    escape(message.to_string().trim()).into_owned()
}

/// Characters that are no picture: controls, invisible ones, and those that change the direction of what follows.
const fn is_active(character: char) -> bool {
    matches!(
        character,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// JSON on one line whose strings are escaped alike, with JSON's own `\uXXXX`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EscapedJson;

impl Formatter for EscapedJson {
    fn write_string_fragment<W: std::io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> std::io::Result<()> {
        for part in fragment.split_inclusive(is_active) {
            let active = part.chars().next_back().filter(|last| is_active(*last));
            let plain = &part[..part.len() - active.map_or(0, char::len_utf8)];
            writer.write_all(plain.as_bytes())?;
            let mut units = [0; 2];
            for unit in active.map_or(&mut [][..], |active| active.encode_utf16(&mut units)) {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    #[test]
    fn r15_names_that_a_terminal_would_act_on_are_shown() {
        let name = "a\x1b[2Jb\nc\u{202e}gnp.\u{9b}31m\u{200b}é\u{7f}\t";
        assert_eq!(escape(name), r"a\u{1b}[2Jb\nc\u{202e}gnp.\u{9b}31m\u{200b}é\u{7f}\t");
        assert_eq!(escape("läyer 1 \\ 図.npy"), "läyer 1 \\ 図.npy");
        assert_eq!(escape_lines("one\n\x07two\n"), "one\n\\u{7}two\n");
        assert_eq!(quoted(Path::new("a\rb")), r"`a\rb`");
        assert_eq!(one_line(&"x\ny\n"), r"x\ny");
    }

    #[test]
    fn r15_json_reads_back_what_was_escaped() {
        let name = "a\x1b\"\\\u{202e}b\u{9b}\u{7f}\u{e0041}é\n";
        let mut bytes = Vec::new();
        let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, EscapedJson);
        serde_json::json!({ name: [name] }).serialize(&mut serializer).expect("writes to memory");
        let text = String::from_utf8(bytes).expect("JSON is text");
        assert!(!text.contains(is_active), "{text}");
        assert!(text.contains(r"\u202e") && text.contains(r"\udb40\udc41") && text.contains('é'), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read, serde_json::json!({ name: [name] }));
        assert_eq!(escape_json("{\n  \"a\u{202e}b\"\n}\n"), "{\n  \"a\\u202eb\"\n}\n");
    }
}

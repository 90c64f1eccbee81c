//! The table of rules in the book is that of the code.

use std::fmt::Write;
use std::path::Path;

use tiled_autograd::RULES;

#[test]
fn the_book_has_the_table_of_the_code() {
    let mut table = String::from("| operator | result | saves | gradients |\n|---|---|---|---|\n");
    for rule in RULES {
        let cells =
            [rule.operator, rule.result, rule.saves, rule.gradient].map(|cell| cell.replace('|', "\\|"));
        writeln!(table, "| {} |", cells.join(" | ")).expect("a text grows");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/autograd.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let [begin, end] = ["<!-- rules -->\n", "<!-- /rules -->"];
    let (before, rest) = page.split_once(begin).expect("the page has a place for the table");
    let (got, after) = rest.split_once(end).expect("the table ends");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, format!("{before}{begin}{table}{end}{after}"))
            .expect("the page can be written");
    } else {
        assert_eq!(got, table, "`BLESS=1 cargo test -p tiled-autograd --test tape` writes it");
    }
}

//! The files of `data/`.

use serde_json::Value;
use tiled::geometry::{Interval, Region};

pub(crate) fn load(file: &str) -> Value {
    let path = format!("{}/golden/data/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).expect("the file is JSON")
}

pub(crate) fn items(json: &Value) -> &[Value] {
    json.as_array().unwrap_or_else(|| panic!("{json} is a list"))
}

pub(crate) fn numbers<const N: usize>(json: &Value) -> [i64; N] {
    let numbers: Option<Vec<i64>> = items(json).iter().map(Value::as_i64).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).unwrap_or_else(|| panic!("{json} has {N} integers"))
}

/// `[y0,y1,x0,x1]`.
pub(crate) fn region(json: &Value) -> Region<2> {
    let [y0, y1, x0, x1] = numbers(json);
    Region::from_rows_cols(Interval::new(y0, y1), Interval::new(x0, x1))
}

/// `[top,bottom,left,right]`.
pub(crate) fn sides(json: &Value) -> [(i64, i64); 2] {
    let [top, bottom, left, right] = numbers(json);
    [(top, bottom), (left, right)]
}

pub(crate) fn number(json: &Value) -> f64 {
    json.as_f64().unwrap_or_else(|| panic!("{json} is a number"))
}

/// `[y][x]`, row by row.
pub(crate) fn image(json: &Value) -> Vec<f64> {
    items(json).iter().flat_map(items).map(number).collect()
}

//! `tiled devices`: what work can run on.

use serde_json::{Map, json};
use tiled::device::devices;

use crate::args::DevicesArgs;
use crate::error::CliError;
use crate::report::{print, print_json};

pub(crate) fn run(args: &DevicesArgs) -> Result<(), CliError> {
    let all = devices();
    if args.json {
        let list = all.iter().map(|device| {
            json!({
                "name": device.name, "description": device.what, "available": device.is_there,
                "memory_bytes": device.memory_bytes, "multiprocessors": device.multiprocessors,
            })
        });
        return print_json(Map::from_iter([("devices".to_owned(), list.collect())]));
    }
    let width = all.iter().map(|device| device.name.len()).max().unwrap_or(0);
    all.iter().try_for_each(|device| print(&format!("{:width$}  {}", device.name, device.what)))
}

//! Tells the extension which cargo profile it is built with.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = std::env::var_os("OUT_DIR")
        .map(PathBuf::from)
        .unwrap_or_default();
    println!("cargo::rustc-env=SLUICEGATE_BUILD={}", profile(&folder));
}

/// `quick` of `target/quick/build/...`: cargo's own variable says `release` of every profile that inherits from that.
fn profile(folder: &Path) -> &str {
    folder
        .ancestors()
        .find(|place| place.file_name().is_some_and(|name| name == "build"))
        .and_then(|build| build.parent()?.file_name()?.to_str())
        .unwrap_or("unknown")
}

//! Short programs that show Tidelock at work, one file each: `cargo run -p tidelock-examples --example 00_batch`.

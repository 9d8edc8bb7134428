//! JSON where it lies: found, compared and edited as bytes, never turned into a tree.

pub mod cursor;
pub mod documents;
pub(crate) mod fields;
pub mod node;
mod plain;
pub mod scan;
pub mod splice;
pub mod string;
pub mod writer;

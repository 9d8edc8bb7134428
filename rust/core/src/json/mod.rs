//! JSON where it lies: found, compared and edited as bytes, never turned into a tree.

pub mod scan;
pub mod string;

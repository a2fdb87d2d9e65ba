//! weir-table

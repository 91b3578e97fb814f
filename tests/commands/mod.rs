//! What commands say beside what they do, over all states of a node.

mod half_way;
mod shown;
mod table;

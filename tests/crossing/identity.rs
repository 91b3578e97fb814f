//! Is it an image for nodes, for this machine, and not older than the node's?

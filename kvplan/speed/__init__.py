"""Work of a forward pass: operations and bytes, no rates."""

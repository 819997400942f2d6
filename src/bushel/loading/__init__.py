"""What runs a `DataLoader`: a chain of nodes, and an iterator over it."""

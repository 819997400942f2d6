"""`DataLoader`: a source, a sampler and operations, as in Grain."""

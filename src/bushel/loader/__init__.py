"""The loader: a source, a sampler and operations, as Grain puts them together."""

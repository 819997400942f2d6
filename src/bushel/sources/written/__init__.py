"""Reads datasets that `ds.write` wrote: elements, manifest, origins."""

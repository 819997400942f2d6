"""`ds.write`: writes a pipeline to shards and a manifest."""

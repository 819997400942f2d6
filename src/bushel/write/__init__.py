"""Pipelines written out: shards, made by many, and a manifest that says what they are."""

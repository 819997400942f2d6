"""Folders of shards with an `index.json`, as MosaicML Streaming and litdata write them."""

"""Folders of shards with an `index.json`: MosaicML Streaming and litdata."""

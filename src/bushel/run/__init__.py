"""Running pipelines: by position, or as streams."""

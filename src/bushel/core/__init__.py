"""What every other part of bushel is built on; nothing here knows of pipelines."""

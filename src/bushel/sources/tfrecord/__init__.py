"""TFRecord files, and the Examples in them."""

"""`on_error`: records that cannot be read or made are skipped, replaced, counted, listed."""

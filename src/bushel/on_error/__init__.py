"""What becomes of records that cannot be read, or made: skipped, replaced, counted, listed."""

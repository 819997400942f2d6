"""Iterators: elements handed over one by one, to devices too, and what is known of the job."""

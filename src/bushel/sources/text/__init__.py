"""Files of lines: text, JSON and CSV."""

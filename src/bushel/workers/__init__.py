"""Worker processes: what they are told, how they run, and who looks after them."""

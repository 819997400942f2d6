"""Which records a step is made of, and at which steps a record is seen."""

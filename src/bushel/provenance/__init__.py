"""`where`, `when`, `covers`, `diff`: the records of a step, and the steps of a record."""

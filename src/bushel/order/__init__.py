"""Which element comes when: operations that are arithmetic on positions, and their streams."""

"""Values between processes: shared memory, and messages over sockets."""

"""Carrying values between processes: shared memory, and the messages beside it."""

"""The engine: plans pipelines and runs them by position, as streams, on threads."""

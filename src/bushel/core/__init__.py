"""The vocabulary of the code: nodes, blocks, streams, states and options."""

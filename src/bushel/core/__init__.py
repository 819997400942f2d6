"""What every other part of bushel is built on: nodes, blocks, streams, states and options."""

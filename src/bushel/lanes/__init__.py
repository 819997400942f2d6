"""Lanes: positions dealt to a fixed number of streams, which the hosts of a job own."""

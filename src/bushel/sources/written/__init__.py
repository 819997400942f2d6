"""Folders that bushel wrote: what their elements are made of, and where they came from."""

"""The command line: look at files of records, index and convert them."""

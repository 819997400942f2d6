"""The command line: inspects, indexes and converts files of records, and monitors trainings."""

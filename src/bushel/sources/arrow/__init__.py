"""Tables in Arrow, Feather and Parquet files, and what is made of their columns."""

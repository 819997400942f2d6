"""Tables in Arrow, Feather and Parquet files."""

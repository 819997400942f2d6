"""Operations that join neighbouring elements: batch, pack, buckets, rebatch, unbatch."""

"""Names of the metadata that may travel with an element."""

DATASET_INDEX = "_dataset_index"
EPOCH = "_epoch"
INDEX = "_index"
RECORD = "_record"
RECORD_KEY = "_record_key"
SEED = "_seed"
META_FEATURES = frozenset([DATASET_INDEX, EPOCH, INDEX, RECORD, RECORD_KEY, SEED])

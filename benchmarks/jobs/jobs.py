"""All jobs, in the order of the tables."""

from benchmarks.jobs import images, text, tokens
from benchmarks.jobs.job import Job

JOBS: dict[str, Job] = {
    job.name: job
    for job in (
        images.FOLDERS,
        images.SHARDS,
        images.ARRAY_RECORD,
        text.LINES,
        text.PARQUET,
        tokens.OF_8,
        tokens.OF_64,
    )
}

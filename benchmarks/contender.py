"""One system doing one workload, in a process of its own: `python -m benchmarks.contender W C`.

Reads requests from standard input, a line of JSON each, and answers with a line of JSON:
`{"do": "prove"}` and `{"do": "read", "seconds": 1.0}`.
"""

import ctypes
import json
import os
import signal
import sys

from benchmarks.workloads import WORKLOADS

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Asks Linux to end this process with its parent, which keeps it stopped most of the time."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(workload_name: str, contender: str) -> None:
    end_with_parent()
    # Libraries may print; the answers keep the real standard output to themselves.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    workload = WORKLOADS[workload_name]
    make = workload.all_contenders()[contender].bind()
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "prove":
            answer: object = workload.gauge.prove(make).to_json()
        else:
            answer = workload.gauge.read(make, request["seconds"])
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

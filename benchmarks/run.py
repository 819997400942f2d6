"""Runs a workload: all its contenders, each in its own process, in turn, round after round."""

from dataclasses import dataclass, field
from importlib.util import find_spec

from benchmarks.process import ContenderFailed, ContenderProcess
from benchmarks.progress import Progress
from benchmarks.proof import Proof
from benchmarks.workload import Form, System, Workload


@dataclass(slots=True)
class Outcome:
    """What one workload gave: a reading for each contender and round, and what went wrong."""

    workload: Workload
    readings: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    def row(self, form: Form) -> dict[System, list[float]]:
        """Gives the readings of the systems that took part in one form."""
        row = {system: [value] for system, value in self.workload.stated.items()}
        for contender in self.workload.contenders(form):
            if contender.name in self.readings:
                row[contender.system] = self.readings[contender.name]
        return row


def installed(system: System) -> bool:
    return system == "hand" or find_spec(system) is not None


def run(
    workload: Workload,
    systems: frozenset[System],
    repeats: int,
    seconds: float,
    progress: Progress,
) -> Outcome:
    """Measures A B C D A B C D ..., so that a slow minute of the machine hits all of them alike."""
    outcome = Outcome(workload)
    names = [name for name, c in workload.all_contenders().items() if c.system in systems]
    started = {name: ContenderProcess(workload.name, name) for name in names}
    try:
        outcome.differences = differences(workload, prove(started, outcome, progress))
        for round_number in range(1, repeats + 1):
            for name in names:
                if name in outcome.failures:
                    continue
                progress.show(f"round {round_number}/{repeats}", name)
                try:
                    if workload.gauge.fresh_process:
                        started[name].end()
                        started[name] = ContenderProcess(workload.name, name)
                    value = started[name].read(seconds)
                    outcome.readings.setdefault(name, []).append(value)
                except ContenderFailed as failure:
                    fail(outcome, name, failure)
    finally:
        for process in started.values():
            process.end()
    return outcome


def prove(
    started: dict[str, ContenderProcess], outcome: Outcome, progress: Progress
) -> dict[str, Proof]:
    """Collects what each contender delivers; one that fails here takes no further part."""
    proofs = {}
    for process in started.values():
        process.request_proof()
    for name, process in started.items():
        progress.show("same work?", name)
        try:
            proofs[name] = process.receive_proof()
        except ContenderFailed as failure:
            fail(outcome, name, failure)
    return proofs


def fail(outcome: Outcome, name: str, failure: ContenderFailed) -> None:
    outcome.failures[name] = str(failure)
    outcome.readings.pop(name, None)


def differences(workload: Workload, proofs: dict[str, Proof]) -> list[str]:
    """Says where contenders did not do the same work: totals of all, order of bushel and Grain."""
    found = []
    other_values = workload.with_other_values()
    for what, names in (("outline", list(proofs)), ("total", sorted(set(proofs) - other_values))):
        claims = {name: getattr(proofs[name], what) for name in names}
        if len(set(claims.values())) > 1:
            found += [f"{name} delivered {claim}" for name, claim in claims.items()]
            break
    for form in workload.forms:
        if form.grain_agrees != "order":
            continue
        pair = [c.name for c in workload.contenders(form) if c.system in ("bushel", "grain")]
        if len({proofs[name].order for name in pair if name in proofs}) > 1:
            found.append(f"{pair[0]} and {pair[1]} delivered different elements or another order")
    return found

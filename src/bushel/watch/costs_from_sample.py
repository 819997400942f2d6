"""For `profile`: computes what each step and each element costs, from the sample."""

import numpy as np

from bushel.core.landing import LEAST_BYTES
from bushel.core.node import Fold, Node, Place, Source, walk
from bushel.core.places import CustomStreamNode, ToStreamNode
from bushel.run.cut import WORKERS
from bushel.run.plan import Plan
from bushel.run.step_total import StepTotal
from bushel.watch.costs import Costs, ElementWork, StepCost
from bushel.watch.profile_counters import Extra
from bushel.watch.profile_variants import by_position_in, crossings_in, places_in
from bushel.watch.sampling import MeasuredPace, StepsSample
from bushel.watch.stats import grouped

# Fewer looks at the interpreter's lock tell nothing of a step.
_LEAST_LOOKS = 8
# Of the pieces of a run, so many tell how much they differ; and fewer than that tell nothing.
_QUANTILES, _LEAST_PIECES = 33, 8
_NOTHING = Extra()
# With more steps than that, those of the same name, as in lanes, are one line.
_MOST_LINES = 12


class Measured:
    """A sample of a pipeline, and the plans of the same with workers and without."""

    def __init__(self, sample: StepsSample, pace: MeasuredPace, alone: Plan) -> None:
        self._sample, self._pace = sample, pace
        steps = list(walk(alone.dealt))
        self._index = {id(step): index for index, step in enumerate(steps)}
        self._steps = steps
        by_position = by_position_in(alone)
        self._by_position = {id(step) for step, by in zip(steps, by_position, strict=True) if by}
        # The last step first, as `explain` has them.
        self._totals = sorted(
            (total for total in sample.totals if not total.waits_for),
            key=lambda total: self._index.get(id(total.node), len(steps)),
        )
        # More may have been made than were asked for.
        last = self._totals[0] if self._totals else None
        made = 0 if last is None or last.is_estimate else last.records
        self._elements = max(made, sample.elements)
        self._nanoseconds = sum(total.nanoseconds for total in self._totals) or 1

    @property
    def seconds_each(self) -> float:
        """Of all steps for an element, by looking at them."""
        return self._nanoseconds * 1e-9 / self._elements

    def steps(self, as_written: Plan) -> tuple[StepCost, ...]:
        """What each step costs, and where it runs as the pipeline is written."""
        places = self._placed(as_written)
        groups = grouped(self._totals, _MOST_LINES)
        return tuple(self._step(name, group, places) for name, _, group in groups)

    def _placed(self, plan: Plan) -> dict[int, str]:
        """Where each step runs in another plan of the same pipeline."""
        return {id(step): place for step, place in zip(self._steps, places_in(plan), strict=True)}

    def _step(self, name: str, group: list[StepTotal], places: dict[int, str]) -> StepCost:
        nanoseconds = sum(total.nanoseconds for total in group)
        works = [self._work(total) for total in group]
        whole = sum(works, ElementWork())
        extras = [self._extra(total) for total in group]
        looks = sum(extra.looks for extra in extras)
        sized = sum(extra.sized for extra in extras)
        slowest = max(group, key=lambda total: total.longest_nanoseconds)
        return StepCost(
            name=name,
            place=places.get(id(group[0].node), "here"),
            parts=len(group),
            records=sum(total.records for total in group),
            records_are_estimated=any(total.is_estimate for total in group),
            seconds=nanoseconds * 1e-9,
            share=nanoseconds / self._nanoseconds,
            cpu_share=whole.cpu_share,
            lock_share=_lock_share(looks, sum(extra.taken for extra in extras)),
            bytes_each=sum(extra.bytes for extra in extras) / sized if sized else None,
            longest_call_seconds=slowest.longest_nanoseconds * 1e-9,
            longest_call_at=slowest.longest_at,
            number=len(self._steps) - 1 - self._index.get(id(group[-1].node), len(self._steps)),
        )

    def _extra(self, total: StepTotal) -> Extra:
        return self._sample.extras.get(id(total.node), _NOTHING)

    def _work(self, total: StepTotal) -> ElementWork:
        """What a step does for an element."""
        extra, elements = self._extra(total), self._elements
        seconds = total.nanoseconds * 1e-9 / elements
        if not total.timed_nanoseconds:
            return ElementWork(seconds, seconds, seconds)
        cpu = seconds * min(1.0, extra.cpu_seconds * 1e9 / total.timed_nanoseconds)
        share = _lock_share(extra.looks, extra.taken)
        return ElementWork(seconds, cpu, cpu if share is None else share * seconds)

    def costs(self, with_worker: Plan, opening_seconds: float) -> Costs:
        """What an element costs; `with_worker` is the plan of the same with worker processes."""
        pace, sample = self._pace, self._sample
        # To look at steps takes time, and what is done between them is not seen: the whole is as
        # long as it is without.
        scale = (pace.seconds_each or self.seconds_each) / self.seconds_each
        places = self._placed(with_worker)
        sums = dict.fromkeys(
            ("in_workers", "beside_workers", "on_threads", "beside_threads"), ElementWork()
        )
        for total in self._totals:
            work = self._work(total).times(scale)
            node = id(total.node)
            remote = places.get(node) == WORKERS
            sums["in_workers" if remote else "beside_workers"] += work
            sums["on_threads" if node in self._by_position else "beside_threads"] += work
        sending, taking = self._sent(with_worker)
        placed = self._is_placed(with_worker)
        sources = [total for total in self._totals if _is_source(total.node)]
        elements = self._elements
        sized = [(total, self._extra(total).bytes_each) for total in sources]
        known = all(each is not None for _, each in sized) and bool(sized)
        source_bytes = sum(total.records * (each or 0) for total, each in sized) / elements
        if sample.requests:
            # Requests read more than records: what lies between them, and columns that are packed.
            source_bytes = sample.requested_bytes / elements
        return Costs(
            in_workers=sums["in_workers"],
            beside_workers=sums["beside_workers"],
            on_threads=sums["on_threads"],
            beside_threads=sums["beside_threads"],
            sending_seconds=sending,
            taking_seconds=taking,
            opening_seconds=opening_seconds,
            bytes=sample.bytes_each,
            source_bytes=source_bytes if known or sample.requests else sample.bytes_each,
            source_records=sum(total.records for total in sources) / elements,
            requests=sample.requests / elements,
            made_bytes=sum(
                total.records * (self._extra(total).bytes_each or 0.0)
                for total in self._totals
                if id(total.node) in self._by_position
            )
            / elements,
            most_threads=most_threads(with_worker),
            spread=_spread(pace.pieces),
            placed_seconds=min(sending, sample.copying_seconds) if placed else 0.0,
            fresh_seconds=sample.fresh_seconds if placed else 0.0,
        )

    def _sent(self, with_worker: Plan) -> tuple[float, float]:
        """Seconds that workers, and this process, need to send and take what an element needs."""
        there = here = 0.0
        records = {id(total.node): total.records for total in self._totals}
        for index, from_worker in crossings_in(with_worker):
            step = id(self._steps[index])
            sending, taking = self._sample.sending.get(step, (0.0, 0.0))
            count = records.get(step, self._elements) / self._elements
            there += count * (sending if from_worker else taking)
            here += count * (taking if from_worker else sending)
        return there, here

    def _is_placed(self, with_worker: Plan) -> bool:
        """Whether workers put records into batches, right where those are sent: large ones are."""
        last = next((step for step in self._steps if not isinstance(step, Place)), None)
        if not isinstance(last, Fold) or last.landing(last.group_size) is None:
            return False
        large = self._sample.bytes_each >= LEAST_BYTES * last.group_size
        return large and self._placed(with_worker).get(id(last)) == WORKERS


def _is_source(node: Node) -> bool:
    return isinstance(node, Source) or (isinstance(node, CustomStreamNode) and not node.inputs)


def _lock_share(looks: int, taken: int) -> float | None:
    return taken / looks if looks >= _LEAST_LOOKS else None


def most_threads(plan: Plan) -> int:
    """The most threads that read options allow."""
    options = [step.read_options for step in walk(plan.dealt) if isinstance(step, ToStreamNode)]
    return max((min(one.num_threads, one.prefetch_buffer_size) for one in options), default=0)


def _spread(pieces: tuple[float, ...]) -> tuple[float, ...]:
    """How much pieces of a run differ, in relation to their mean."""
    if len(pieces) < _LEAST_PIECES:
        return (1.0,)
    made = np.quantile(np.array(pieces), np.linspace(0, 1, _QUANTILES))
    mean = made.mean()
    return tuple(float(one) for one in made / mean) if mean > 0 else (1.0,)

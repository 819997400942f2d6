"""All axes, by name."""

from benchmarks.growth import files, parts
from benchmarks.growth.axis import Axis
from benchmarks.growth.chains import LANES, LENGTH, SIZE, STEPS, WORKERS

AXES: dict[str, Axis] = {
    axis.name: axis for axis in (parts.AXIS, files.AXIS, LANES, WORKERS, STEPS, SIZE, LENGTH)
}

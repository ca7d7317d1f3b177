"""The data of the experiments: which data set stands for which of the paper's six."""

from __future__ import annotations

from dataclasses import dataclass

from stonet.config import ReadConfig
from stonet.data.field import Dataset
from stonet.datasets import DATASETS, check_known, find, open_any, open_dataset
from stonet.io.read import narrow


@dataclass(frozen=True)
class ExperimentData:
    """A data set, or a variable of one, under the name that the experiments use.

    Args:
        dataset: name in `stonet.datasets`, or a path.
        settings: of the section `read`.
        paper: the paper's data set of the same kind.
        title: for tables and figures.
        unit: in which errors are reported.
        per_unit: one such unit in the data's own unit.
        options: of the function that opens the data set.
    """

    dataset: str
    settings: tuple[str, ...] = ()
    paper: str | None = None
    title: str = ""
    unit: str = ""
    per_unit: float = 1.0
    options: tuple[tuple[str, int], ...] = ()

    @property
    def error_unit(self) -> str:
        """The unit of the errors in tables and figures."""
        return self.unit or "data unit"


SHORT_WAVE = "wave-short"  # for smoke tests; not one of the paper's
EXPERIMENT_DATA = {
    "wave": ExperimentData("wave", (), "Wave", "Wave, simulated", "1e-3", 1e-3),
    SHORT_WAVE: ExperimentData(
        "wave", title="Wave, 12 episodes", options=(("sequences", 12), ("frames", 60))
    ),
    "solar-pv": ExperimentData(
        "pv-rhode-island", (), "Solar", "PV power, Rhode Island", "% of capacity", 1e-2
    ),
    "temperature-uk": ExperimentData("era5-uk", (), "Temperature", "Temperature, UK", "K"),
    "humidity-bhutan": ExperimentData(
        "era5-bhutan", ("read.variables=r2m",), "Humidity", "Relative humidity, Bhutan", "%"
    ),
    "radiation-bhutan": ExperimentData(
        "era5-bhutan",
        ("read.variables=ssrd",),
        "Cloud",
        "Solar radiation, Bhutan (stand-in for cloud cover)",
        "W/m²",
        3600.0,
    ),
    "wind-bhutan": ExperimentData(
        "era5-bhutan", ("read.variables=u10,v10",), "Wind", "Wind, Bhutan (two components)", "m/s"
    ),
    "temperature-brazil": ExperimentData(
        "inmet-brazil",
        ("read.variables=air_temperature",),
        "Temperature",
        "Temperature, stations in Brazil",
        "K",
    ),
    "humidity-brazil": ExperimentData(
        "inmet-brazil",
        ("read.variables=relative_humidity",),
        "Humidity",
        "Relative humidity, stations in Brazil",
        "%",
    ),
    "wind-brazil": ExperimentData(
        "inmet-brazil",
        ("read.variables=wind_speed",),
        "Wind",
        "Wind speed, stations in Brazil",
        "m/s",
    ),
}
PUBLISHED = tuple(name for name in EXPERIMENT_DATA if name != SHORT_WAVE)


def experiment_data(name: str) -> ExperimentData:
    """The entry of this name; for any other name, the data set or file itself.

    Args:
        name: an entry of EXPERIMENT_DATA, a data set or a file.
    """
    return EXPERIMENT_DATA.get(name) or ExperimentData(name, (), None, name)


def check_name(name: str) -> None:
    """Refuse a name that is neither an entry, a data set nor a file.

    Args:
        name: as the user gave it.
    """
    if name not in EXPERIMENT_DATA:
        check_known(name, EXPERIMENT_DATA)


def open_experiment_data(name: str, config: ReadConfig, inductive: bool = False) -> Dataset:
    """Open the data of an experiment.

    Args:
        name: an entry of EXPERIMENT_DATA, a data set or a file.
        config: the selection to read.
        inductive: keep the points that the data set itself holds out; otherwise only seen points
            are left, at most `config.points` of them.
    """
    entry = experiment_data(name)
    selection = config if inductive else config.model_copy(update={"points": None})
    if entry.options:
        dataset = narrow(open_dataset(entry.dataset, **dict(entry.options)), selection)
    else:
        dataset = open_any(entry.dataset, selection, inductive)
    if inductive:
        return dataset
    seen = dataset.take(dataset.seen)
    thin = config.points is not None and config.points < len(seen.points)
    return narrow(seen, ReadConfig(points=config.points)) if thin else seen


def is_local(name: str) -> bool:
    """Whether the data are on this machine, so that nothing need be downloaded.

    Args:
        name: an entry of EXPERIMENT_DATA, a data set or a file.
    """
    dataset = experiment_data(name).dataset
    return dataset not in DATASETS or not find(dataset).missing

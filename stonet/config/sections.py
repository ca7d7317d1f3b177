"""The sections of the configuration: every setting with its default, limits and meaning."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator


class Section(BaseModel):
    """A group of settings; frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def setting(default: Any, description: str, **limits: Any) -> Any:
    """A setting with its default, its line in the table of settings and its limits.

    Args:
        default: the value where none is given.
        description: its meaning.
        **limits: as of pydantic's Field, such as ge=0.
    """
    return Field(default, description=description, **limits)


def _as_pairs(value: Any) -> Any:
    """'a=1,b=2' as {"a": "1", "b": "2"}."""
    if not isinstance(value, str):
        return value
    pairs = [part.rpartition("=") for part in value.split(",") if part.strip()]
    if not all(name.strip() and equals for name, equals, _ in pairs):
        raise ValueError("expected NAME=VALUE, several separated by commas")
    return {name.strip(): text.strip() for name, _, text in pairs}


Pairs = Annotated[dict[str, str], BeforeValidator(_as_pairs)]


class ReadConfig(Section):
    """What is read from the data, and how it is interpreted: options of `stonet.read`."""

    variables: tuple[str, ...] = setting((), "names to read; empty: all")
    bbox: tuple[float, float, float, float] | None = setting(
        None, "region: west, south, east, north in degrees, or x, y, x, y on a plane"
    )
    start: str | None = setting(None, "first time: a date, or a duration without a calendar")
    stop: str | None = setting(None, "last time, included: 2019-03 ends with that month")
    points: int | None = setting(None, "largest number of points, spread over the region", ge=1)
    every: str | None = setting(None, "step to which values are averaged, such as 1h")
    timezone: str | None = setting(None, "zone of times without one, e.g. Europe/Berlin; none: UTC")
    stations: str | None = setting(None, "table of station positions, for files without them")
    geometry: Literal["plane", "sphere"] | None = setting(
        None, "geometry; none: sphere for lat/lon, plane for x/y"
    )
    units: Pairs = setting({}, "units by variable, where the data have none: temperature=degC")
    rename: Pairs = setting({}, "new names of columns and variables: old=new")
    wind_components: tuple[str, str] | None = setting(
        None, "speed and direction that are replaced by eastward_wind and northward_wind"
    )
    missing: tuple[float, ...] = setting((), "numbers that mean missing, beside NaN and -9999")
    infinite: Literal["refuse", "missing"] = setting("refuse", "treatment of infinite values")
    duplicates: Literal["refuse", "mean", "first", "last"] = setting(
        "refuse", "treatment of values that are given twice for one time"
    )
    same_place: Literal["refuse", "keep", "first"] = setting(
        "refuse", "treatment of several stations at one position"
    )

    _station_table: Any = None  # in memory, in place of the file `stations`
    _known_places: Any = None  # Points of a run, for stations that nothing else locates

    @field_validator("variables", "bbox", "missing", "wind_components", mode="before")
    @classmethod
    def _comma_separated(cls, value: Any) -> Any:
        """'a, b' as ['a', 'b'], and a number as a list of one."""
        if isinstance(value, str):
            return [part.strip() for part in value.split(",")]
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return [value] if is_number else value

    @field_validator("start", "stop", mode="before")
    @classmethod
    def _as_written(cls, value: Any) -> Any:
        """Years and TOML's dates as text; a time with an offset in UTC."""
        if isinstance(value, datetime) and value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        if isinstance(value, date):  # datetime is a subclass
            return value.isoformat()
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class DataConfig(Section):
    """Inputs, targets and their split. A length is a number of steps or a duration ("6h")."""

    past: int | str | None = setting(
        None, "length of the inputs; none: 12 steps, or a day if the data have a daily cycle"
    )
    horizon: int | str | None = setting(
        None, "length of the forecast; none: that of the data set, or 12 steps"
    )
    stride: int | None = setting(
        None, "frames between two windows; none: that of the data set, or 1", ge=1
    )
    split: tuple[float, float, float] = setting(
        (0.7, 0.1, 0.2), "shares of training, validation and test"
    )
    unseen: float | None = setting(
        None, "share of points held out from training; none: that of the data set", ge=0, lt=1
    )
    unseen_regions: bool = setting(
        False, "hold points out as whole regions instead of evenly between the others"
    )
    bounds: Pairs = setting(
        {}, "declared range of forecasts, as wind_speed=0:; else from the training data"
    )
    range_margin: float = setting(
        0.1, "share of the range by which its extremes are widened for forecasts", ge=0
    )
    allow_angles: bool = setting(False, "train on directions in degrees as if they were numbers")
    labels: int | None = setting(None, "target times kept in each training window; none: all", ge=1)


class GraphConfig(Section):
    """The multipole graph. Radii follow from mean degrees (the point included) unless given."""

    levels: int = setting(3, "number of levels", ge=1, le=8)
    seed: int = setting(2022, "seed of the random partition into levels")
    within_degree: float = setting(12.0, "mean number of neighbours within a level", gt=0)
    between_degree: float = setting(8.0, "mean number of neighbours in the next level", gt=0)
    decoder_degree: float = setting(12.0, "mean number of nodes around a query", gt=0)
    within_radii: tuple[float, ...] | None = setting(None, "radii within levels, one for each")
    between_radii: tuple[float, ...] | None = setting(None, "radii between neighbouring levels")
    decoder_radius: float | None = setting(None, "radius around a query")


class KernelConfig(Section):
    """Sizes and form of the graph kernels; the paper's symbols in brackets."""

    latent: int = setting(24, "width of the latent state [d]", ge=1)
    hidden: int = setting(64, "hidden units of the kernels [kappa, xi]", ge=1)
    parametric: int = setting(4, "outputs of the parametric network [a_t(x)]", ge=1)
    frequencies: int = setting(12, "sines and cosines of the time embedding [d_t]", ge=1)
    layers: int = setting(1, "layers of the encoder", ge=1)
    kernel: Literal["full", "diag"] = setting("full", "kernel [kappa]: d x d matrix or diagonal")
    edges: Literal["difference", "radius", "sharp"] = setting(
        "difference", "kernels see x - x_j, that over the radius, or local offset and distance"
    )
    linear_path: bool = setting(False, "linear path beside each activation, residual encoder")


class PaperConfig(KernelConfig):
    """The paper's network (stonet-paper); the defaults are the paper's formula."""

    rank: int = setting(24, "width of branch and trunk, if merged", ge=1)
    decoder: Literal["revised", "fixed", "ode"] = setting(
        "revised", "branch over neighbours, branch with weights per node, or Appendix B"
    )
    indices: Literal["separate", "merged"] = setting(
        "separate", "branch for each pair (i, k), or a width of `rank` and one matrix C"
    )
    trunk: Literal["literal", "mlp"] = setting(
        "literal", "sigma(eta [x, t] + zeta), or a network of [x, e_t]"
    )
    separable: bool = setting(False, "xi(dx, dt) = h(dx) u(dt) instead of a joint network")
    terms: int = setting(3, "number of decoders, for equal segments of the horizon", ge=1)
    frames: int | None = setting(None, "newest frames that are encoded; none: all", ge=1)
    flags: bool = setting(False, "the lift also sees which channels were observed")
    window_time: bool = setting(
        True, "the parametric network sees the position in the window; no frame is shared"
    )


class OperatorConfig(KernelConfig):
    """The paper's architecture, well conditioned (stonet-operator)."""

    latent: int = setting(32, "width of the latent state [d]", ge=1)
    hidden: int = setting(8, "hidden units of the kernels [kappa, xi]", ge=1)
    parametric: int = setting(8, "outputs of the parametric network [a_t(x)]", ge=1)
    frequencies: int = setting(8, "sines and cosines of the time embedding [d_t]", ge=1)
    edges: Literal["difference", "radius", "sharp"] = setting(
        "sharp", "kernels see x - x_j, that over the radius, or local offset and distance"
    )
    linear_path: bool = setting(True, "linear path beside each activation, residual encoder")
    rank: int = setting(128, "width of branch and trunk", ge=1)
    basis: Literal["modes", "lags"] = setting(
        "modes", "time basis of xi: whitened modes of the training past, or the lags themselves"
    )
    terms: int = setting(1, "number of decoders, for equal segments of the horizon", ge=1)


class NetworkConfig(Section):
    """STONet, the operator network."""

    latent: int = setting(64, "width of the latent state", ge=1, le=4096)
    rank: int = setting(128, "width of branch and trunk", ge=1, le=4096)
    kernels: int = setting(4, "products in each kernel [K]", ge=1, le=256)
    hidden: int = setting(32, "hidden units of each kernel", ge=1, le=4096)
    heads: int = setting(
        0, "heads of attention over the neighbours, beside the kernel of the branch", ge=0, le=64
    )
    parametric: int = setting(16, "outputs of the parametric network [a(x, t)]", ge=1, le=1024)
    layers: int = setting(1, "layers of the encoder; 0: none", ge=0, le=64)
    anchor: Literal["last", "blend", "linear"] = setting(
        "blend",
        "forecast that is corrected: newest value, blend with the daily value, or linear forecast",
    )
    dropout: float = setting(0.0, "share of branch outputs dropped in training", ge=0, lt=1)
    mode_floor: float = setting(
        1e-12, "smallest eigenvalue of a mode of the past, as a share of the first", ge=0, lt=1
    )
    sun: bool = setting(True, "solar elevation as an input, if there are hours and latitudes")


class BaselineConfig(Section):
    """Baselines and reference forecasts. None: as in the model's paper or code."""

    hidden: int | None = setting(None, "hidden units", ge=1)
    layers: int | None = setting(None, "layers", ge=1)
    order: int | None = setting(None, "terms of a graph convolution, itself included [K]", ge=1)
    neighbours: int | None = setting(
        None, "nearest points, itself included; none: 25, or all if there are fewer", ge=1
    )
    past: int | None = setting(None, "steps of data.past that it uses; none: 12, or raced", ge=1)
    embedding: int | None = setting(None, "width of node embeddings", ge=1)
    base: Literal["none", "persistence", "ridge"] = setting(
        "none", "forecast that the baseline corrects"
    )
    extras: bool = setting(True, "place and solar elevation as inputs, beside the calendar")
    legacy: bool = setting(False, "as the paper's code ran it, for models with such a form")


class TrainDefaults(NamedTuple):
    """Settings of the optimisation for models without values of their own.

    Args:
        batch: windows in a step.
        alpha: weight of the reconstruction.
        schedule: of the learning rate.
    """

    batch: int = 8
    alpha: float = 0.1
    schedule: Literal["cosine", "step", "constant"] = "cosine"


TRAIN_DEFAULTS = TrainDefaults()


class TrainConfig(Section):
    """The optimisation."""

    epochs: int = setting(20, "epochs", ge=0)
    minutes: float | None = setting(
        None, "CPU minutes instead of epochs; on a GPU wall time", gt=0, allow_inf_nan=False
    )
    steps: int | None = setting(
        None, "steps of an epoch; none: one pass over the training windows", ge=1
    )
    batch: int | None = setting(None, "windows in a step; none: the model's own", ge=1)
    consecutive: int | None = setting(
        None, "consecutive windows in a batch, which share frames; none: the model's own", ge=1
    )
    optimiser: Literal["auto", "adam", "muon"] = setting("auto", "auto: the model's own")
    lr: float | None = setting(None, "learning rate; none: the model's own", gt=0)
    decay: float | None = setting(None, "weight decay; none: the model's own", ge=0)
    schedule: Literal["cosine", "step", "constant"] | None = setting(
        None,
        "learning-rate schedule; step: halved after each fifth of the training; none: the model's",
    )
    warmup: int = setting(20, "steps of linear warm-up, at most a tenth of the training", ge=0)
    clip: float = setting(5.0, "largest norm of the gradient", gt=0)
    race: float = setting(
        0.25, "share of the training in which the model's candidate settings compete", ge=0, lt=1
    )
    alpha: float | None = setting(
        None, "weight of the reconstruction loss; none: the model's own", ge=0
    )
    patience: int = setting(10, "epochs without improvement before training stops", ge=1)
    validation_windows: int = setting(
        256, "largest number of validation windows; fewer if there are many points", ge=1
    )
    save_every: int = setting(100, "steps between saved states", ge=1)
    tile: int | None = setting(
        None, "points of a spatial tile; none: all points up to 20,000, else 8,192", ge=1
    )
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "device; auto: a GPU if there is one")
    precision: Literal["float32", "bf16"] = setting(
        "float32", "precision of matrix products in training steps"
    )
    fallback: bool | None = setting(
        None,
        "use reference forecasts where they are better in validation; none: the model's own",
    )
    final: bool = setting(
        False, "refit on training and validation part once validation has chosen all settings"
    )
    seed: int = setting(0, "seed of initial weights and of all random draws")

    @property
    def complete(self) -> CompleteTrainConfig:
        """The same with the usual value for what neither user nor model has set."""
        return CompleteTrainConfig(**self.model_dump(exclude_none=True))


class CompleteTrainConfig(TrainConfig):
    """A TrainConfig in which every value of a model is filled in."""

    batch: int = TRAIN_DEFAULTS.batch
    alpha: float = TRAIN_DEFAULTS.alpha
    schedule: Literal["cosine", "step", "constant"] = TRAIN_DEFAULTS.schedule


class AugmentationConfig(Section):
    """Random changes of the training inputs."""

    hidden_sensors: float | None = setting(
        None, "share of sensors hidden in a step; none: the model's own", ge=0, lt=1
    )
    hidden_regions: float = setting(
        0.3, "share of the steps that hide neighbouring sensors instead of single ones", ge=0, le=1
    )


class Config(Section):
    """All settings that determine a trained model."""

    model: str = setting("stonet", "name of the model: stonet, a baseline or a reference forecast")
    read: ReadConfig = ReadConfig()
    data: DataConfig = DataConfig()
    graph: GraphConfig = GraphConfig()
    network: NetworkConfig = NetworkConfig()
    paper: PaperConfig = PaperConfig()
    operator: OperatorConfig = OperatorConfig()
    baseline: BaselineConfig = BaselineConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    train: TrainConfig = TrainConfig()

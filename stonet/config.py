"""Configuration: small frozen sections, read from TOML, strict about every key.

A TOML file holds only what differs from a preset; `--set train.lr=1e-3` overrides both. What was
resolved travels inside the run folder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from stonet.errors import UsageError, unknown_name


class Section(BaseModel):
    """A group of settings; frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ReadConfig(Section):
    """What is taken from a file, and how it is understood. Options of `stonet.read`."""

    variables: tuple[str, ...] = ()  # empty: all of them
    bbox: tuple[float, float, float, float] | None = None  # west, south, east, north; or x, y, x, y
    start: str | None = None  # a date (or a duration, without a calendar); inclusive
    stop: str | None = None  # inclusive: "2019-03" ends with that month
    points: int | None = Field(None, ge=1)  # at most so many, spread over the region
    every: str | None = None  # "1h": averages around whole hours
    timezone: str | None = None  # of times without one, such as "Europe/Berlin"; None: UTC
    stations: str | None = None  # a table of places, for files that do not tell theirs
    geometry: Literal["plane", "sphere"] | None = None  # None: sphere for lat/lon, plane for x/y
    missing: tuple[float, ...] = ()  # numbers that mean "not observed", beside NaN and -9999
    infinite: Literal["refuse", "missing"] = "refuse"
    duplicates: Literal["refuse", "mean", "first", "last"] = "refuse"  # times given twice
    same_place: Literal["refuse", "keep", "first"] = "refuse"  # several stations at one position

    @field_validator("variables", "bbox", "missing", mode="before")
    @classmethod
    def _comma_separated(cls, value: Any) -> Any:
        if isinstance(value, str):
            return [part.strip() for part in value.split(",")]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return [value] if number else value

    @field_validator("start", "stop", mode="before")
    @classmethod
    def _as_written(cls, value: Any) -> Any:
        """2019 and TOML's own dates as text; a moment with an offset in UTC."""
        if isinstance(value, datetime) and value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        if isinstance(value, date):  # of which datetime is a kind
            return value.isoformat()
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class DataConfig(Section):
    """What is forecast from what. A length is a number of steps or a duration such as "6h"."""

    past: int | str | None = None  # None: 12 steps, or a day where the data has a daily cycle
    horizon: int | str | None = None  # None: the data set's own, or 12 steps
    stride: int | None = Field(None, ge=1)  # frames between two windows; None: the data set's, or 1
    split: tuple[float, float, float] = (0.7, 0.1, 0.2)  # training, validation, test
    unseen: float | None = Field(None, ge=0, lt=1)  # share of points held out; None: the data set's
    labels: int | None = Field(None, ge=1)  # target times kept in each training window; None: all


class GraphConfig(Section):
    """The multipole graph. Radii are found for a mean degree (self included) unless given."""

    levels: int = Field(3, ge=1, le=8)
    seed: int = 2022  # of the random partition into levels
    within_degree: float = Field(12.0, gt=0)
    between_degree: float = Field(8.0, gt=0)
    decoder_degree: float = Field(12.0, gt=0)
    within_radii: tuple[float, ...] | None = None  # one for each level
    between_radii: tuple[float, ...] | None = None  # one for each pair of neighbouring levels
    decoder_radius: float | None = None


class ModelConfig(Section):
    """The network. The paper's symbol stands behind each name."""

    latent: int = Field(16, ge=1)  # d
    rank: int = Field(32, ge=1)  # branch and trunk outputs
    hidden: int = Field(16, ge=1)  # hidden units of kappa and xi
    parametric: int = Field(4, ge=1)  # outputs of a_t(x)
    frequencies: int = Field(8, ge=1)  # d_t, sines and cosines of the time embedding
    layers: int = Field(1, ge=1)  # of the encoder
    kernel: Literal["full", "diag"] = "full"  # kappa: a d x d matrix, or its diagonal
    decoder: Literal["revised", "literal", "fixed", "ode"] = "revised"
    separable: bool = True  # xi(dx, dt) = h(dx) u(dt) instead of a joint network
    terms: int = Field(1, ge=1)  # decoders for that many equal segments of the horizon
    base: Literal["ridge", "persistence", "none"] = "ridge"  # what the network corrects
    frames: int | None = Field(12, ge=1)  # newest frames that are encoded; None: all
    sharp: bool = True  # kernels see offsets scaled by the radius, distance and a self flag
    residual_width: int = Field(128, ge=0)  # of the point-wise residual network; 0: none
    residual_members: int | None = Field(
        None, ge=1
    )  # of its ensemble, whose mean is taken; None: one, or as many as a budget of minutes allows
    sun: bool = True  # base and expert know where the sun stands, where there are hours and a globe
    linear_path: bool = True  # beside each activation; trunk as 1 + trunk; residual encoder
    window_time: bool = False  # encoder sees the position in the window; then no frame is shared


class BaselineConfig(Section):
    """The baselines and the reference forecasts. None: as the model's paper or its code has it."""

    hidden: int | None = Field(None, ge=1)
    layers: int | None = Field(None, ge=1)
    order: int | None = Field(None, ge=1)  # K: terms of a graph convolution, the point itself first
    neighbours: int | None = Field(
        None, ge=1
    )  # nearest points, itself among them; None: 25, fewer where there are few points
    past: int | None = Field(None, ge=1)  # steps of data.past that it uses; None: 12, as published
    embedding: int | None = Field(None, ge=1)  # of a node, for models that have one
    base: Literal["none", "persistence", "ridge"] = (
        "none"  # the forecast that the model corrects, as STONet does
    )
    legacy: bool = False  # as the paper's harness ran it; only models that say so have such a form


class TrainConfig(Section):
    """The optimisation."""

    epochs: int = Field(20, ge=0)
    steps: int | None = Field(None, ge=1)  # per epoch; None: one pass over the training windows
    batch: int = Field(8, ge=1)  # windows in one step
    consecutive: int | None = Field(
        None, ge=1
    )  # consecutive windows that share frames within a batch; None: the model's own
    lr: float | None = Field(None, gt=0)  # None: the model's own
    schedule: Literal["cosine", "step", "constant"] = "cosine"
    warmup: int = Field(20, ge=0)  # steps
    clip: float = Field(5.0, gt=0)
    alpha: float = Field(0.1, ge=0)  # weight of the reconstruction
    patience: int = Field(10, ge=1)  # epochs without improvement before stopping
    validation_windows: int = Field(64, ge=1)  # at most: fewer where points are many
    save_every: int = Field(100, ge=1)  # steps between resumable states
    tile: int | None = Field(
        None, ge=1
    )  # points of a spatial tile, one in each step; None: all points up to 20,000, else 8,192
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one
    precision: Literal["float32", "bf16"] = "float32"  # of matrix products in training steps
    seed: int = 0


class PretrainingConfig(Section):
    """Pretraining of the point-wise residual network, before the operator is trained."""

    steps: int = Field(6000, ge=0)  # of each member of the ensemble, at most


class AugmentationConfig(Section):
    """Changes of the training inputs."""

    hidden_sensors: float | None = Field(
        None, ge=0, lt=1
    )  # share of sensors hidden in a step; 0: none, also in pretraining; None: the model's own


class Config(Section):
    """Everything that decides a run."""

    model: str = "stonet"
    read: ReadConfig = ReadConfig()
    data: DataConfig = DataConfig()
    graph: GraphConfig = GraphConfig()
    network: ModelConfig = ModelConfig()
    baseline: BaselineConfig = BaselineConfig()
    pretraining: PretrainingConfig = PretrainingConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    train: TrainConfig = TrainConfig()


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {  # the paper's formula and nothing else; sizes after the authors' scripts
        "data": {"past": 12},
        "graph": {"within_degree": 20.0, "between_degree": 16.0, "decoder_degree": 13.0},
        "network": {
            "latent": 24,
            "rank": 24,
            "hidden": 64,
            "frequencies": 12,
            "separable": False,
            "terms": 3,
            "base": "none",
            "frames": None,
            "sharp": False,
            "residual_width": 0,
            "sun": False,
            "linear_path": False,
            "window_time": True,
        },
        "train": {
            "lr": 2e-3,
            "alpha": 0.5,
            "consecutive": 1,
            "schedule": "step",
            "epochs": 100,
            "patience": 20,
        },
        "augmentation": {"hidden_sensors": 0.0},
    },
    "tiny": {  # for tests and first looks: seconds on one core
        "data": {"past": 6, "horizon": 4},
        "graph": {"levels": 2, "within_degree": 6.0, "between_degree": 4.0, "decoder_degree": 5.0},
        "network": {
            "latent": 8,
            "rank": 8,
            "hidden": 8,
            "parametric": 2,
            "frequencies": 2,
            "residual_width": 8,
        },
        "train": {
            "epochs": 2,
            "steps": 6,
            "batch": 4,
            "consecutive": 2,
            "validation_windows": 8,
        },
        "pretraining": {"steps": 20},
    },
}


def load_config(
    preset: str = "default",
    path: str | Path | None = None,
    settings: Sequence[str] = (),
) -> Config:
    """A preset, then a TOML file's keys, then `section.key=value` settings; the last one wins."""
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    merged = PRESETS[preset]
    if path is not None:
        merged = _merge(merged, _read_toml(Path(path)))
    for setting in settings:
        merged = _merge(merged, _parse_setting(setting))
    return make_config(merged)


def make_config(values: Mapping[str, Any]) -> Config:
    """Validate; a wrong key or value is an error that names the nearest valid key."""
    _check_keys(values)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][:2])
        got = repr(first.get("input"))
        raise UsageError(f"Setting {where} = {got} does not fit: {first['msg']}.") from None


def _check_keys(values: Mapping[str, Any]) -> None:
    for name, content in values.items():
        if name not in Config.model_fields:
            raise unknown_name("configuration section", name, Config.model_fields)
        section = Config.model_fields[name].annotation
        if (
            isinstance(content, Mapping)
            and isinstance(section, type)
            and issubclass(section, Section)
        ):
            for key in content:
                if key not in section.model_fields:
                    raise unknown_name(f"key in section '{name}':", key, section.model_fields)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"No configuration file '{path}'. Check the path given to --config."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"'{path}' cannot be read as TOML: {error}.") from None


def _parse_setting(setting: str) -> dict[str, Any]:
    """'train.lr=1e-3' as {"train": {"lr": 0.001}}; a bare word counts as text."""
    key, equals, text = setting.partition("=")
    parts = key.strip().split(".")
    if not equals or len(parts) > 2 or not all(parts):
        raise UsageError(
            f"Setting '{setting}' is not of the form section.key=value, e.g. train.lr=1e-3."
        )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
        if value == "none" and _may_be_none(parts):
            value = None
    return {parts[0]: value} if len(parts) == 1 else {parts[0]: {parts[1]: value}}


def _may_be_none(parts: Sequence[str]) -> bool:
    """Whether a setting can be left to the data; elsewhere "none" is a word like any other."""
    fields = Config.model_fields
    if len(parts) == 2 and parts[0] in fields:
        section = fields[parts[0]].annotation
        if not (isinstance(section, type) and issubclass(section, Section)):
            return False
        fields = section.model_fields
    known = fields.get(parts[-1])
    return known is not None and type(None) in get_args(known.annotation)


def _merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(first)
    for key, value in second.items():
        old = merged.get(key)
        merged[key] = (
            _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
        )
    return merged

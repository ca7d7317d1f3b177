"""The command line: results on stdout, one message for an error, no partial files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from helpers.paths import ROOT
from helpers.shell import Shell
from helpers.small import QUICK, small_field

from stonet import __version__
from stonet.cli import main
from stonet.data.field import Field
from stonet.evaluation.probabilistic import INTERVAL_METRICS
from stonet.training import fit

COMMANDS = (
    *("demo", "check", "fit", "predict", "hindcast", "plot", "evaluate", "compare"),
    *("influence", "place", "reproduce"),
    *("data list", "data info", "data fetch"),
)
SETTINGS = [word for setting in QUICK for word in ("--set", setting)]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data.nc and with `run`, fitted on it."""
    folder = tmp_path_factory.mktemp("cli")
    small_field().to_netcdf(str(folder / "data.nc"))
    words = ["stonet", "fit", str(folder / "data.nc"), "-o", str(folder / "run")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [*words, "--preset", "tiny", *SETTINGS])
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code
    return folder


def all_files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*")}


# Help


def test_help_loads_nothing_heavy() -> None:
    """Heavy imports would make it slow."""
    command = [sys.executable, "-X", "importtime", "-m", "stonet", "--help"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    for verb in ("demo", "fit", "predict", "evaluate"):
        assert verb in done.stdout
    imported = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "typer" in imported and not imported & {"torch", "numpy", "scipy", "xarray", "pandas"}


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, option: str, stonet: Shell) -> None:
    result = stonet(*command.split(), option)
    assert result.code == 0 and "--json" in result.out and "--help" in result.out


def test_the_version_is_printed(stonet: Shell) -> None:
    result = stonet("--version")
    assert (result.code, result.out) == (0, f"stonet {__version__}\n")


# The way from file to forecast


def test_fit_is_reproducible_and_prints_json(fitted: Path, stonet: Shell) -> None:
    result = stonet("fit", fitted / "data.nc", "-o", "run", "--preset", "tiny", *SETTINGS, "--json")
    content = json.loads(result.out)
    assert result.code == 0 and result.err == ""
    names = {"run", "best_validation", "steps", "choices", "config", "versions", "seconds"}
    assert set(content) == names and content["choices"] == []
    assert content["steps"] == 6 and content["config"]["train"]["steps"] == 3
    for name in ("model.safetensors", "metrics.json"):
        assert Path("run", name).read_bytes() == (fitted / "run" / name).read_bytes()


def test_minutes_limit_a_training(fitted: Path, stonet: Shell) -> None:
    model = ("--preset", "tiny", "--model", "gcgru")
    words = ("fit", fitted / "data.nc", "-o", "run", *model, "--minutes", "0.02")
    content = json.loads(stonet(*words, "--json").out)
    assert content["config"]["train"]["minutes"] == 0.02 and content["steps"] > 0
    assert "--resume" in stonet.refused(*words)


def test_options_override_settings_which_override_the_file_and_the_preset(
    fitted: Path, stonet: Shell
) -> None:
    Path("my.toml").write_text('model = "linear"\n[train]\nlr = 0.5\nseed = 4\nbatch = 7\n')
    words = ("fit", fitted / "data.nc", "--preset", "tiny", "--config", "my.toml", "--json")
    content = json.loads(stonet(*words, "-o", "a", "--set", "train.lr=0.25", "--seed", "5").out)
    train = content["config"]["train"]
    assert (train["lr"], train["seed"], train["batch"], train["epochs"]) == (0.25, 5, 7, 2)
    assert content["config"]["model"] == "linear" and content["steps"] == 0
    content = json.loads(stonet(*words, "-o", "b", "--model", "persistence").out)
    assert content["config"]["model"] == "persistence"


def test_evaluate_gives_tidy_records(fitted: Path, stonet: Shell) -> None:
    result = stonet("evaluate", fitted / "run", "--json")
    content = json.loads(result.out)
    assert result.code == 0 and result.err == "" and result.out.count("\n") == 1
    assert set(content) == {"records", "deviation_percent", "config", "versions", "seconds"}
    fields = ["dataset", "model", "points", "channel", "lead", "metric", "value", "seed"]
    assert all(list(record) == fields for record in content["records"])
    columns = {name: {record[name] for record in content["records"]} for name in fields}
    assert columns["model"] == {"stonet", "persistence", "climatology", "linear"}
    assert columns["points"] == {"seen"}
    assert columns["lead"] == {"all", 1, 2, 3, 4} and columns["channel"] == {"t2m"}
    assert columns["metric"] == {"mae", "rmse", "mape", "bias", *INTERVAL_METRICS}
    assert content["deviation_percent"] is None and content["config"]["model"] == "stonet"


def test_evaluate_prints_a_table(fitted: Path, stonet: Shell) -> None:
    result = stonet("evaluate", fitted / "run", "--part", "validation")
    assert result.code == 0
    for word in ("validation scores", "stonet", "persistence", "seen", "MAE", "skill"):
        assert word in result.out  # on stdout


def test_predict_writes_a_file_that_xarray_opens(fitted: Path, stonet: Shell) -> None:
    words = ("--at", "0.5,0.5", "--at", "0.1,0.9", "--times", "+90min", "--times", "+4h")
    result = stonet("predict", fitted / "run", fitted / "data.nc", *words, "-o", "f.nc", "--json")
    content = json.loads(result.out)
    assert (content["out"], content["points"], content["times"]) == (
        "f.nc",
        2,
        2,
    ) and result.err == ""
    with xr.open_dataset("f.nc", engine="h5netcdf") as opened:
        assert opened["t2m"].dims == ("time", "station") and opened["t2m"].shape == (2, 2)
        lead = opened["time"].values - small_field().times[-1:].astype("datetime64[ns]")
        assert lead.astype("timedelta64[m]").astype(int).tolist() == [90, 240]
        assert opened["x"].values.tolist() == [0.5, 0.1] and opened["t2m"].units == "degC"
        assert np.isfinite(opened["t2m"].values).all()
    assert all_files(Path()) == {"f.nc"}


def test_predict_uses_the_points_of_the_data_and_the_trained_leads_by_default(
    fitted: Path, stonet: Shell
) -> None:
    assert stonet("predict", fitted / "run").code == 0
    with xr.open_dataset("forecast.nc", engine="h5netcdf") as opened:
        assert opened["t2m"].shape == (4, 20)


# Errors: expected, got, meaning, remedy


def write(name: str, change: dict[str, object]) -> None:
    field = small_field()
    values = dict(vars(field)) | change
    Field(**{key: value for key, value in values.items() if key != "mask"}).to_netcdf(name)


def bad_data() -> None:
    blank = np.full((120, 20, 1), np.nan, dtype=np.float32)
    write("blank.nc", {"values": blank})
    small_field(frames=30).to_netcdf("short.nc")
    Path("broken.nc").write_bytes(b"not netcdf")
    Path("table.xyz").write_text("1,2")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.nc"], r"missing\.nc"),
        (["wav"], r"'wav'.*Did you mean 'wave'"),
        (["table.xyz"], r"\.xyz.*\.nc"),
        (["broken.nc"], r"broken\.nc.*NetCDF"),
        (["blank.nc"], r"missing"),
        (["short.nc"], r"too short.*\d+ frames"),
        (["DATA", "--set", "train.lrr=1"], r"'lrr'.*Did you mean 'lr'"),
        (["DATA", "--set", "trian.lr=1"], r"'trian'.*Did you mean 'train'"),
        (["DATA", "--set", "train.lr=-1"], r"train\.lr.*greater than 0"),
        (["DATA", "--set", "train.lr"], r"section\.key=value"),
        (["DATA", "--preset", "tinny"], r"Unknown preset 'tinny'.*Did you mean 'tiny'"),
        (["DATA", "--model", "stone"], r"Unknown model 'stone'.*Did you mean 'stonet'"),
        (["DATA", "--config", "no.toml"], r"no\.toml"),
        (["DATA", "--set", "data.horizon=90min"], r"step"),
        (["DATA", "--minutes", "0"], r"minutes"),
    ],
)
def test_fit_refuses_wrong_input_and_writes_nothing(
    words: list[str], message: str, fitted: Path, stonet: Shell
) -> None:
    bad_data()
    before = all_files(Path())
    given = [str(fitted / "data.nc") if word == "DATA" else word for word in words]
    tiny = [] if "--preset" in given else ["--preset", "tiny"]
    error = stonet.refused("fit", *given, "-o", "run/deep", *tiny)
    assert re.search(message, error), error
    assert all_files(Path()) == before


def test_an_existing_run_is_not_overwritten(fitted: Path, stonet: Shell) -> None:
    words = ("fit", fitted / "data.nc", "-o", "run", "--preset", "tiny", *SETTINGS)
    shutil.copytree(fitted / "run", "run")
    before = {file: file.read_bytes() for file in Path("run").rglob("*") if file.is_file()}
    assert "--resume" in stonet.refused(*words)
    assert "holds a run already" in stonet.refused(
        "fit", "missing.nc", "-o", "run"
    )  # before reading
    assert {file: file.read_bytes() for file in before} == before
    assert stonet(*words, "--resume").code == 0


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_a_missing_or_tampered_run_is_refused(verb: str, fitted: Path, stonet: Shell) -> None:
    message = stonet.refused(verb, "nowhere", fitted / "data.nc")
    assert "nowhere" in message and "stonet fit" in message
    Path("empty").mkdir()
    assert "empty" in stonet.refused(verb, "empty")
    weights = shutil.copytree(fitted / "run", "run") / Path("model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    message = stonet.refused(verb, "run", fitted / "data.nc", code=3)
    assert "model.safetensors" in message
    assert not list(Path().glob("*.nc"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--at", "0.5"], "'0.5'"),
        (["--at", "sites.csv"], "sites.csv"),
        (["--times", "+9d"], "2026-03-14"),
        (["--times", "soon"], "soon"),
        (["-o", "f.xls"], ".nc"),
        (["-o", "no/where/f.nc"], "no/where"),
    ],
)
def test_predict_refuses_wrong_points_times_and_files(
    words: list[str], message: str, fitted: Path, stonet: Shell
) -> None:
    assert message in stonet.refused("predict", fitted / "run", fitted / "data.nc", *words)
    assert not all_files(Path())


def test_other_channels_or_units_are_refused(fitted: Path, stonet: Shell) -> None:
    write("wind.nc", {"channels": ("wind",)})
    write("kelvin.nc", {"units": ("K",)})
    for verb in ("predict", "evaluate"):
        assert "wind" in stonet.refused(verb, fitted / "run", "wind.nc")
        assert "'K'" in stonet.refused(verb, fitted / "run", "kelvin.nc")
    assert "Unknown part 'tset'" in stonet.refused("evaluate", fitted / "run", "--part", "tset")


@pytest.mark.parametrize("words", [["fti"], ["fit"], ["fit", "data.nc", "--epochs", "3"]])
def test_unknown_commands_and_options_are_refused(words: list[str], stonet: Shell) -> None:
    result = stonet(*words)
    assert result.code == 2 and result.out == "" and "Usage: stonet" in result.err
    assert not all_files(Path())


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "with --resume to continue"),
        (MemoryError(), 4, "Out of memory. Use fewer points"),
        (OSError(28, "No space left on device"), 4, "No space left on device. Check the path"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 4, "Out of memory."),
        (ImportError("x.so: failed to map segment from shared object"), 4, "Out of memory."),
        (ZeroDivisionError("division by zero"), 5, "This is a bug"),
    ],
)
def test_errors_during_training_have_their_exit_code(
    error: BaseException, code: int, message: str, fitted: Path, stonet: Shell
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    stonet.patch.setattr(fit, "fit_run", fail)
    words = ("fit", fitted / "data.nc", "-o", "run", "--preset", "tiny", "--json")
    result = stonet(*words)
    assert result.code == code and message in result.err
    assert json.loads(result.out)["error"]["exit_code"] == code


@pytest.mark.parametrize("verb", ["predict", "hindcast"])
def test_wrong_query_points_are_refused_before_the_data_are_read(
    verb: str, fitted: Path, stonet: Shell
) -> None:
    message = stonet.refused(verb, fitted / "run", "missing.nc", "--at", "1,2,3", "-o", "x.zarr")
    assert "'1,2,3'" in message


def test_unfinished_hindcasts_are_reported_before_the_data_are_read(
    fitted: Path, stonet: Shell
) -> None:
    Path("x.zarr.part").mkdir()
    words = ("hindcast", fitted / "run", "missing.nc", "-o", "x.zarr")
    assert "x.zarr.part" in stonet.refused(*words)  # not a store of ours
    Path("x.zarr.part/done").mkdir()
    assert "--resume" in stonet.refused(*words)
    assert "missing.nc" in stonet.refused(*words, "--resume")


def test_predict_warns_of_places_far_from_any_observation(fitted: Path, stonet: Shell) -> None:
    words = ("predict", fitted / "run", fitted / "data.nc", "-o", "x.nc", "--at")
    assert "warning" not in stonet(*words, "0.5,0.5").err
    result = stonet(*words, "90,70")
    assert result.code == 0 and "1 of 1 points are far from any observation" in result.err
    assert "'90,70'" in result.err

"""The command line: one clear answer, one clear refusal, nothing half-written."""

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

from stonet.cli import main
from stonet.data.field import Field
from stonet.training import fit

SETTINGS = [word for setting in QUICK for word in ("--set", setting)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def everything(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*")}


# Help


def test_help_loads_nothing_heavy() -> None:
    """That is what makes it quick; a clock in a test would only tell how busy the machine is."""
    command = [sys.executable, "-X", "importtime", "-m", "stonet", "--help"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    for verb in ("demo", "fit", "predict", "evaluate"):
        assert verb in done.stdout
    imported = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "typer" in imported and not imported & {"torch", "numpy", "scipy", "xarray", "pandas"}


@pytest.mark.parametrize("verb", ["demo", "fit", "predict", "evaluate"])
def test_every_verb_explains_itself(verb: str, stonet: Shell) -> None:
    answer = stonet(verb, "--help")
    assert answer.code == 0 and "--json" in answer.out and "--help" in answer.out


# The way from file to forecast


def test_fit_tells_machines_how_it_went(place: Path, stonet: Shell) -> None:
    answer = stonet("fit", place / "data.nc", "-o", "run", "--preset", "tiny", *SETTINGS, "--json")
    told = json.loads(answer.out)
    assert answer.code == 0 and answer.err == ""
    assert set(told) == {"run", "best_validation", "steps", "config", "versions", "seconds"}
    assert told["steps"] == 6 and told["config"]["train"]["steps"] == 3
    for name in ("model.safetensors", "metrics.json"):
        assert Path("run", name).read_bytes() == (place / "run" / name).read_bytes()


def test_minutes_decide_the_steps_and_a_run_that_is_there_is_refused_before_they_are_timed(
    place: Path, stonet: Shell
) -> None:
    stonet.patch.setenv("XDG_CACHE_HOME", str(Path("cache").resolve()))
    words = ("fit", place / "data.nc", "-o", "run", "--preset", "tiny", "--minutes", "0.02")
    told = json.loads(stonet(*words, "--json").out)
    train = told["config"]["train"]
    assert told["steps"] == train["epochs"] * train["steps"]
    shutil.rmtree("cache")
    assert "holds a run already" in stonet.refused(*words)
    assert not Path("cache").exists()


def test_options_override_settings_which_override_the_file_and_the_preset(
    place: Path, stonet: Shell
) -> None:
    Path("my.toml").write_text('model = "linear"\n[train]\nlr = 0.5\nseed = 4\nbatch = 7\n')
    words = ("fit", place / "data.nc", "--preset", "tiny", "--config", "my.toml", "--json")
    told = json.loads(stonet(*words, "-o", "a", "--set", "train.lr=0.25", "--seed", "5").out)
    train = told["config"]["train"]
    assert (train["lr"], train["seed"], train["batch"], train["epochs"]) == (0.25, 5, 7, 2)
    assert told["config"]["model"] == "linear" and told["steps"] == 0
    told = json.loads(stonet(*words, "-o", "b", "--model", "persistence").out)
    assert told["config"]["model"] == "persistence"


def test_evaluate_gives_tidy_records(place: Path, stonet: Shell) -> None:
    answer = stonet("evaluate", place / "run", "--json")
    told = json.loads(answer.out)
    assert answer.code == 0 and answer.err == "" and answer.out.count("\n") == 1
    assert set(told) == {"records", "deviation_percent", "config", "versions", "seconds"}
    fields = ["dataset", "model", "points", "channel", "lead", "metric", "value", "seed"]
    assert all(list(record) == fields for record in told["records"])
    columns = {name: {record[name] for record in told["records"]} for name in fields}
    assert columns["model"] == {"stonet", "persistence", "climatology", "linear"}
    assert columns["points"] == {"seen"}
    assert columns["lead"] == {"all", 1, 2, 3, 4} and columns["channel"] == {"t2m"}
    assert columns["metric"] == {"mae", "rmse", "mape", "bias"}
    assert told["deviation_percent"] is None and told["config"]["model"] == "stonet"


def test_evaluate_shows_people_a_table(place: Path, stonet: Shell) -> None:
    answer = stonet("evaluate", place / "run", "--part", "validation")
    assert answer.code == 0
    for word in ("validation scores", "stonet", "persistence", "seen", "MAE", "skill"):
        assert word in answer.out  # a result: it can be sent to a file


def test_predict_writes_what_plain_xarray_opens(place: Path, stonet: Shell) -> None:
    words = ("--at", "0.5,0.5", "--at", "0.1,0.9", "--times", "+90min", "--times", "+4h")
    answer = stonet("predict", place / "run", place / "data.nc", *words, "-o", "f.nc", "--json")
    told = json.loads(answer.out)
    assert (told["out"], told["points"], told["times"]) == ("f.nc", 2, 2) and answer.err == ""
    with xr.open_dataset("f.nc", engine="h5netcdf") as opened:
        assert opened["t2m"].dims == ("time", "station") and opened["t2m"].shape == (2, 2)
        lead = opened["time"].values - small_field().times[-1:].astype("datetime64[ns]")
        assert lead.astype("timedelta64[m]").astype(int).tolist() == [90, 240]
        assert opened["x"].values.tolist() == [0.5, 0.1] and opened["t2m"].units == "degC"
        assert np.isfinite(opened["t2m"].values).all()
    assert everything(Path()) == {"f.nc"}


def test_predict_asks_at_the_datas_points_and_the_trained_times_by_default(
    place: Path, stonet: Shell
) -> None:
    assert stonet("predict", place / "run").code == 0
    with xr.open_dataset("forecast.nc", engine="h5netcdf") as opened:
        assert opened["t2m"].shape == (4, 20)


# Refusals: expected, got, meaning, remedy


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
    ("words", "told"),
    [
        (["missing.nc"], r"No file 'missing\.nc'\. Check the path"),
        (["wav"], r"Unknown file or data set 'wav'.*Did you mean 'wave'"),
        (["table.xyz"], r"not read \('\.xyz'\); expected .*\.nc"),
        (["broken.nc"], r"'broken\.nc' cannot be read as NetCDF"),
        (["blank.nc"], r"missing \(NaN\)\..*[Cc]heck"),
        (["short.nc"], r"too short.*Give at least \d+ frames, or shorten"),
        (["DATA", "--set", "train.lrr=1"], r"'lrr'.*Did you mean 'lr'"),
        (["DATA", "--set", "trian.lr=1"], r"'trian'.*Did you mean 'train'"),
        (["DATA", "--set", "train.lr=-1"], r"train\.lr = -1 does not fit: .*greater than 0"),
        (["DATA", "--set", "train.lr"], r"not of the form section\.key=value"),
        (["DATA", "--preset", "tinny"], r"Unknown preset 'tinny'.*Did you mean 'tiny'"),
        (["DATA", "--model", "stone"], r"Unknown model 'stone'.*Did you mean 'stonet'"),
        (["DATA", "--config", "no.toml"], r"No configuration file 'no\.toml'"),
        (["DATA", "--set", "data.horizon=90min"], r"no whole number of the data's steps"),
        (["DATA", "--minutes", "0"], r"training of 0 minutes; expected a number above 0"),
        (["DATA", "--minutes", "1", "--devices", "2"], r"--minutes is for one process"),
    ],
)
def test_fit_refuses_what_is_wrong_and_makes_nothing(
    words: list[str], told: str, place: Path, stonet: Shell
) -> None:
    bad_data()
    before = everything(Path())
    given = [str(place / "data.nc") if word == "DATA" else word for word in words]
    tiny = [] if "--preset" in given else ["--preset", "tiny"]
    message = stonet.refused("fit", *given, "-o", "run/deep", *tiny)
    assert re.search(told, message), message
    assert everything(Path()) == before


def test_a_run_is_neither_overwritten_nor_lost(place: Path, stonet: Shell) -> None:
    words = ("fit", place / "data.nc", "-o", "run", "--preset", "tiny", *SETTINGS)
    shutil.copytree(place / "run", "run")
    before = {file: file.read_bytes() for file in Path("run").rglob("*") if file.is_file()}
    assert "holds a run already" in stonet.refused(*words)
    assert "holds a run already" in stonet.refused("fit", "missing.nc", "-o", "run")  # at once
    assert {file: file.read_bytes() for file in before} == before
    assert stonet(*words, "--resume").code == 0


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_a_missing_or_tampered_run_is_refused(verb: str, place: Path, stonet: Shell) -> None:
    message = stonet.refused(verb, "nowhere", place / "data.nc")
    assert "No run in nowhere. Run `stonet fit DATA -o nowhere` first." in message
    Path("empty").mkdir()
    assert "No run in empty" in stonet.refused(verb, "empty")
    weights = shutil.copytree(place / "run", "run") / Path("model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    message = stonet.refused(verb, "run", place / "data.nc", code=3)
    assert "model.safetensors is not sound" in message and "fit again" in message
    assert not list(Path().glob("*.nc"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--at", "0.5"], "'0.5' is no place"),
        (["--at", "sites.csv"], "No file 'sites.csv'"),
        (["--times", "+9d"], "out of reach"),
        (["--times", "soon"], "'soon' is no date"),
        (["-o", "f.xls"], "names end in .nc"),
        (["-o", "no/where/f.nc"], "No folder 'no/where'"),
    ],
)
def test_predict_refuses_what_it_cannot_answer(
    words: list[str], told: str, place: Path, stonet: Shell
) -> None:
    assert told in stonet.refused("predict", place / "run", place / "data.nc", *words)
    assert not everything(Path())


def test_other_channels_or_units_are_refused(place: Path, stonet: Shell) -> None:
    write("wind.nc", {"channels": ("wind",)})
    write("kelvin.nc", {"units": ("K",)})
    for verb in ("predict", "evaluate"):
        assert "there are: wind" in stonet.refused(verb, place / "run", "wind.nc")
        assert "('K',)" in stonet.refused(verb, place / "run", "kelvin.nc")
    assert "Unknown part 'tset'" in stonet.refused("evaluate", place / "run", "--part", "tset")


@pytest.mark.parametrize("words", [["fti"], ["fit"], ["fit", "data.nc", "--epochs", "3"]])
def test_unknown_words_are_refused(words: list[str], stonet: Shell) -> None:
    answer = stonet(*words)
    assert answer.code == 2 and answer.out == "" and "Usage: stonet" in answer.err
    assert not everything(Path())


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (KeyboardInterrupt(), 130, "The same command with --resume goes on from here."),
        (MemoryError(), 4, "Out of memory. Use fewer points"),
        (OSError(28, "No space left on device"), 4, "No space left on device. Check the path"),
        (ZeroDivisionError("division by zero"), 5, "This is a bug; STONET_DEBUG=1 shows where."),
    ],
)
def test_what_happens_meanwhile_is_told_too(
    error: BaseException, code: int, told: str, place: Path, stonet: Shell
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    stonet.patch.setattr(fit, "fit_run", fail)
    words = ("fit", place / "data.nc", "-o", "run", "--preset", "tiny", "--json")
    answer = stonet(*words)
    assert answer.code == code and told in answer.err
    assert json.loads(answer.out)["error"]["exit_code"] == code


@pytest.mark.parametrize("verb", ["predict", "hindcast"])
def test_a_place_that_is_none_is_refused_before_the_data_are_read(
    verb: str, place: Path, stonet: Shell
) -> None:
    message = stonet.refused(verb, place / "run", "missing.nc", "--at", "here", "-o", "x.zarr")
    assert "'here' is no place" in message


def test_unfinished_hindcasts_are_told_of_before_the_data_are_read(
    place: Path, stonet: Shell
) -> None:
    Path("x.zarr.part").mkdir()
    words = ("hindcast", place / "run", "missing.nc", "-o", "x.zarr")
    assert "in the way, and none of ours" in stonet.refused(*words)
    Path("x.zarr.part/done").mkdir()
    assert "unfinished work. Go on with --resume" in stonet.refused(*words)
    assert "missing.nc" in stonet.refused(*words, "--resume")

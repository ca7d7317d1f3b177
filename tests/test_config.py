"""Configuration: settings override files, files override presets; typing errors are refused."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stonet.config import PRESETS, Config, load_config, make_config, settings_table
from stonet.errors import UsageError, unknown_name


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_hold_only_differences_from_the_defaults(preset):
    config, plain = load_config(preset), Config()
    assert make_config(PRESETS[preset]) == config
    for section, values in PRESETS[preset].items():
        if section == "model":
            assert values == config.model != plain.model
            continue
        for key, value in values.items():
            assert getattr(getattr(config, section), key) == value
            assert getattr(getattr(plain, section), key) != value, f"{section}.{key} is the default"


@pytest.mark.parametrize("preset", PRESETS)
def test_a_dumped_configuration_is_read_again(preset):
    config = load_config(preset, settings=["graph.within_radii=[0.1, 0.2, 0.4]", "data.past='6h'"])
    assert make_config(config.model_dump()) == config
    assert make_config(json.loads(config.model_dump_json())) == config  # lists for tuples


def test_settings_override_the_file_and_the_file_overrides_the_preset(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[train]\nepochs = 7\nlr = 0.5\n[data]\nhorizon = '3h'\n", encoding="utf-8")
    before = copy.deepcopy(PRESETS)
    config = load_config("tiny", path, ["train.lr=1e-3", "train.lr=2e-3"])
    assert config.train.lr == 2e-3  # the last setting
    assert config.train.epochs == 7  # the file
    assert config.data.horizon == "3h"
    assert config.train.batch == PRESETS["tiny"]["train"]["batch"]  # the preset
    assert config.train.clip == Config().train.clip  # the default
    assert before == PRESETS


@given(st.floats(1e-9, 1e9), st.integers(1, 10**6))
def test_numbers_pass_through_settings_unchanged(lr, batch):
    config = load_config(settings=[f"train.lr={lr!r}", f"train.batch={batch}"])
    assert (config.train.lr, config.train.batch) == (lr, batch)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("data.past=6h", "6h"),
        ("data.past='6h'", "6h"),
        ("data.past=none", None),
        ("data.past=3", 3),
    ],
)
def test_a_bare_word_is_a_string(setting, value):
    assert load_config("tiny", settings=[setting]).data.past == value


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("read.missing=999", "missing", (999.0,)),
        ("read.missing=-99.9", "missing", (-99.9,)),
        ("read.missing=[999, -1]", "missing", (999.0, -1.0)),
        ("read.missing=999,-1", "missing", (999.0, -1.0)),
        ("read.start=2019-03-01", "start", "2019-03-01"),
        ("read.start=2019", "start", "2019"),
        ("read.stop=20190315", "stop", "20190315"),
        ("read.stop=2019-03", "stop", "2019-03"),
        ("read.stop=2019-03-15T06:00:00", "stop", "2019-03-15T06:00:00"),
        ("read.stop=2019-03-15T06:00:00+02:00", "stop", "2019-03-15T04:00:00"),
        ("read.stop=none", "stop", None),
    ],
)
def test_a_single_number_and_a_date_need_no_quotes(setting, key, value):
    config = load_config(settings=[setting])
    assert getattr(config.read, key) == value
    assert make_config(json.loads(config.model_dump_json())) == config


def test_a_boolean_is_neither_a_number_nor_a_date():
    for setting in ("read.missing=true", "read.start=true", "read.stop=06:00:00"):
        with pytest.raises(UsageError, match=rf"{setting.partition('=')[0]} = .* does not fit"):
            load_config(settings=[setting])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("trian.lr=1", r"Unknown configuration section 'trian'.*Did you mean 'train'\?"),
        ("train.epoch=1", r"section 'train': 'epoch'.*Did you mean 'epochs'\?"),
        ("train.lr=-1", "train.lr = -1 does not fit: Input should be greater than 0"),
        ("train.lr=", "train.lr = '' does not fit"),
        ("data.past=1.5", "data.past = 1.5 does not fit"),
        ("data.split=[0.5, 0.5]", "data.split"),
        ("paper.kernel=fast", "paper.kernel = 'fast' does not fit.*'full' or 'diag'"),
        ("train=3", "train = 3 does not fit"),
        ("train.lr", "not of the form section.key=value, e.g. train.lr=1e-3"),
        ("a.b.c=1", "not of the form section.key=value"),
        ("=1", "not of the form section.key=value"),
    ],
)
def test_wrong_settings_are_refused_with_a_hint(setting, message):
    with pytest.raises(UsageError, match=message):
        load_config(settings=[setting])


def test_wrong_files_and_presets_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"Unknown preset 'papr'.*Did you mean 'paper'\?"):
        load_config("papr")
    with pytest.raises(UsageError, match=r"No configuration file '.*nothing.toml'.*--config"):
        load_config(path=tmp_path / "nothing.toml")
    with pytest.raises(UsageError, match="cannot be read as TOML"):
        load_config(path=tmp_path)
    for content in (b"[train\nlr = 1", b"\xff\xfe\x00"):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(UsageError, match=r"'.*bad.toml' cannot be read as TOML"):
            load_config(path=tmp_path / "bad.toml")


def test_a_configuration_is_immutable():
    config = load_config("tiny")
    with pytest.raises(ValidationError, match="frozen"):
        config.train.lr = 1.0
    with pytest.raises(ValidationError, match="frozen"):
        config.model = "other"


def test_a_name_far_from_all_choices_gets_no_suggestion():
    error = unknown_name("model", "zzzz", ["agcrn", "dcrnn"])
    assert str(error) == "Unknown model 'zzzz'. Choose one of: agcrn, dcrnn."
    assert error.exit_code == 2


def test_none_is_a_word_where_it_is_a_choice_and_else_leaves_a_setting_unset():
    assert load_config(settings=["baseline.base=none"]).baseline.base == "none"
    assert load_config("tiny", settings=["data.past=none"]).data.past is None
    assert load_config(settings=["train.lr=none"]).train.lr is None
    with pytest.raises(UsageError, match=r"train\.clip"):
        load_config(settings=["train.clip=none"])


@pytest.mark.parametrize(
    "settings",
    [
        ["train.lr=1e-3", "data.past=6h", "paper.frames=none", "model=dcrnn"],
        {"train": {"lr": 1e-3}, "data": {"past": "6h"}, "paper": {"frames": None},
         "model": "dcrnn"},
        {"train.lr": 1e-3, "data.past": "6h", "paper.frames": None, "model": "dcrnn"},
        {"train": {"lr": 0.5}, "train.lr": 1e-3, "data": {"past": "6h"}, "paper.frames": None,
         "model": "dcrnn"},
        Config(model="dcrnn", train={"lr": 1e-3}, data={"past": "6h"}, paper={"frames": None}),
    ],
)  # fmt: skip
def test_settings_may_be_strings_a_dictionary_or_a_configuration(settings):
    config = load_config("tiny", settings=settings)
    assert (config.model, config.train.lr, config.data.past) == ("dcrnn", 1e-3, "6h")
    assert config.paper.frames is None
    assert config.train.batch == PRESETS["tiny"]["train"]["batch"]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_complete_configuration_overrides_every_preset(preset):
    complete = make_config(load_config("tiny", settings=["train.lr=1e-3"]).model_dump())
    assert load_config(preset, settings=complete) == complete


def test_wrong_dictionaries_are_refused_with_a_hint():
    with pytest.raises(UsageError, match=r"Did you mean 'epochs'\?"):
        load_config(settings={"train": {"epoch": 1}})
    with pytest.raises(UsageError, match=r"Did you mean 'train'\?"):
        load_config(settings={"trian.lr": 1})
    with pytest.raises(UsageError, match=r"train\.lr = -1 does not fit"):
        load_config(settings={"train.lr": -1})
    with pytest.raises(UsageError, match=r"not of the form section\.key"):
        load_config(settings={"train.lr.much": 1})


def test_a_file_may_leave_a_setting_unset(tmp_path):
    (tmp_path / "mine.toml").write_text('[paper]\nframes = "none"\n[baseline]\nbase = "none"\n')
    config = load_config(path=tmp_path / "mine.toml")
    assert config.paper.frames is None and config.baseline.base == "none"


def test_the_table_lists_every_setting_with_a_description():
    rows = {(row.section, row.key): row for row in settings_table()}
    dumped = Config().model_dump()
    nested = {(s, key) for s, values in dumped.items() if s != "model" for key in values}
    assert rows.keys() == nested | {("", "model")}
    assert all(row.description and row.type for row in rows.values())
    assert rows["paper", "kernel"][2:4] == ("full or diag", "full")
    assert rows["train", "lr"][2:4] == ("float or none", "none")
    assert rows["data", "split"][2:4] == ("list of float", "(0.7, 0.1, 0.2)")
    assert all(len(row.description) < 100 and "\n" not in row.description for row in rows.values())

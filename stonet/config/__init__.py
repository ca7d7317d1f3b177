"""Configuration: frozen sections of settings, from presets, TOML files and overrides.

A TOML file holds only what differs from a preset; `--set train.lr=1e-3` overrides both. Unknown
keys are errors. The resolved configuration is stored in the run folder.
"""

from stonet.config.loading import (
    PRESETS,
    SettingRow,
    Settings,
    load_config,
    make_config,
    settings_table,
)
from stonet.config.sections import (
    TRAIN_DEFAULTS,
    AugmentationConfig,
    BaselineConfig,
    CompleteTrainConfig,
    Config,
    DataConfig,
    GraphConfig,
    KernelConfig,
    NetworkConfig,
    OperatorConfig,
    PaperConfig,
    ReadConfig,
    Section,
    TrainConfig,
)

__all__ = [
    "PRESETS",
    "TRAIN_DEFAULTS",
    "AugmentationConfig",
    "BaselineConfig",
    "CompleteTrainConfig",
    "Config",
    "DataConfig",
    "GraphConfig",
    "KernelConfig",
    "NetworkConfig",
    "OperatorConfig",
    "PaperConfig",
    "ReadConfig",
    "Section",
    "SettingRow",
    "Settings",
    "TrainConfig",
    "load_config",
    "make_config",
    "settings_table",
]

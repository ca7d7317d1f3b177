"""Service: one trained model among its stations, and the latest observations; thread-safe.

Observations are replaced as a whole: a request works on those that it found. The features of the
latest issue times are kept warm.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import numpy as np

from stonet.calibration.conformal import Calibration
from stonet.calibration.stored import load_calibration
from stonet.data.field import Field
from stonet.inference.inputs import check_inputs
from stonet.inference.session import Session
from stonet.serving.history import bounded, continued, position_at, with_observations
from stonet.serving.issue import Issue
from stonet.serving.limits import Limits
from stonet.serving.messages import Observations
from stonet.serving.times import parse
from stonet.training.documents import parse_document
from stonet.training.run_folder import RunFolder
from stonet.training.trained_model import TrainedModel

CARD, MAX_CARD = "README.md", 65_536  # name and bytes of a model card
KEPT_LINKS = 8  # sets of query points whose links to the stations are kept


@dataclass(frozen=True)
class Run:
    """A run folder as a service needs it.

    Args:
        trained: the model.
        calibration: None: no intervals.
        name: of the folder.
        identity: the beginning of the checksum of the weights.
        card: the model card, in Markdown.
        metrics: how training went.
    """

    trained: TrainedModel
    calibration: Calibration | None
    name: str
    identity: str
    card: str = ""
    metrics: Mapping[str, object] = field(default_factory=dict)

    @staticmethod
    def load(path: Path, trained: TrainedModel | None = None) -> Run:
        """Read a run folder.

        Args:
            path: of the folder.
            trained: the model, if it was loaded before.

        Raises:
            ModelFileError: if files are damaged.
        """
        folder = RunFolder(path)
        model = TrainedModel.load(path) if trained is None else trained
        card = folder.read(CARD)[:MAX_CARD] if CARD in folder.files else b""
        return Run(
            model,
            load_calibration(model, path),
            path.resolve().name,
            folder.files["model.safetensors"][:12],
            card.decode("utf-8", "replace"),
            parse_document(folder.read("metrics.json"), f"{path}/metrics.json"),
        )


@dataclass(frozen=True)
class Snapshot:
    """The observations at some moment, and the graph among their stations.

    Args:
        number: counts the changes of the observations.
        field: observations.
        session: of the model and the stations.
    """

    number: int
    field: Field
    session: Session


class Service:
    """Forecasts of one run from the latest observations.

    Args:
        run: the trained model.
        field: observations.
        limits: of requests.

    Raises:
        DataError: if the observations are of another kind than those of the training.

    Example:
        >>> service = Service(Run.load(Path("runs/uk")), stonet.read("uk.nc"))
        >>> service.issue().forecast(sites, times, [0.05, 0.95])
    """

    def __init__(self, run: Run, field: Field, limits: Limits = Limits()) -> None:  # noqa: B008
        run.trained.check_compatible(field)
        self.run, self.limits = run, limits
        self._changes, self._lookup = Lock(), Lock()
        session = Session(run.trained, field.points, kept_links=KEPT_LINKS)
        self._snapshot = Snapshot(0, bounded(field, limits), session)
        self._issues: OrderedDict[tuple[int, int], Issue] = OrderedDict()
        self._posted: frozenset[int] = frozenset()  # times of observations that were sent

    @property
    def snapshot(self) -> Snapshot:
        """The present observations."""
        return self._snapshot

    @property
    def trained(self) -> TrainedModel:
        """The trained model."""
        return self.run.trained

    def issue(self, time: str | None = None, extra: Observations | None = None) -> Issue:
        """The features of an issue time.

        Args:
            time: as in a request; None: the latest.
            extra: observations for this call only.

        Raises:
            Refused: if the time is outside of the observations, or the extra ones do not fit.
            DataError: if nothing can be forecast from the observations.
        """
        now = self.snapshot
        if extra is not None:
            field = with_observations(now.field, extra, self.limits)
            return self._make(field, position_at(field, time), now.session)
        place = position_at(now.field, time)
        key = now.number, place
        with self._lookup:
            found = self._issues.get(key)
            if found is not None:
                self._issues.move_to_end(key)
                return found
        made = self._make(now.field, place, now.session)
        with self._lookup:
            if now.number == self.snapshot.number:
                self._issues[key] = made
                while len(self._issues) > self.limits.issues:
                    self._issues.popitem(last=False)
        return made

    def observe(self, new: Observations) -> Snapshot:
        """Take new observations; forecasts follow, and intervals adapt to the errors they show.

        Args:
            new: of known stations.

        Raises:
            Refused: if they do not fit.
            DataError: if they cannot be of the quantities in training; nothing is changed then.
        """
        calendar = self.trained.time_spec.calendar
        times = np.array([parse(time, calendar) for time in new.times], dtype=np.int64)

        def change(field: Field) -> Field:
            changed = with_observations(field, new, self.limits)
            check_inputs(self.trained, changed.isel(time=np.isin(changed.times, times)))
            return changed

        changed = self._change(change)
        self._posted = self._posted | set(times.tolist())
        return changed

    def replace(self, field: Field) -> Snapshot:
        """Take other observations in place of all but those that `observe` took since then.

        Args:
            field: of the same quantities; stations may differ.

        Raises:
            DataError: if they do not fit the model; nothing is changed then.
        """
        return self._change(lambda old: bounded(continued(field, old, self._posted), self.limits))

    def _change(self, change: Callable[[Field], Field]) -> Snapshot:
        """Replace the observations after a check."""
        with self._changes:
            old = self.snapshot
            field = change(old.field)
            self.trained.check_compatible(field)
            count = len(field.times)
            past = self.trained.time_spec.past
            check_inputs(self.trained, field.between(max(0, count - past), count))
            session = old.session
            if field.points != session.nodes:
                session = Session(self.trained, field.points, kept_links=KEPT_LINKS)
            with self._lookup:
                self._snapshot = Snapshot(old.number + 1, field, session)
                self._issues.clear()
            return self._snapshot

    def _make(self, field: Field, place: int, session: Session) -> Issue:
        run = self.run
        return Issue(run.trained, run.calibration, field.between(0, place + 1), session)

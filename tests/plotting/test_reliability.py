"""The reliability figure shows the counted shares."""

from __future__ import annotations

import numpy as np

from stonet.evaluation.reliability import Reliability
from stonet.plotting.reliability import reliability_figure


def test_the_figure_shows_the_coverage_of_every_group():
    reliability = Reliability(pit=np.arange(10.0))
    for level, hits in ((0.5, 40.0), (0.9, 95.0)):
        for lead in (1, 2, 3):
            reliability.counts["lead", lead, level] += (100.0, hits - lead)
    assert reliability.coverage("lead", 0.9) == {1: 0.94, 2: 0.93, 3: 0.92}
    figure = reliability_figure(reliability, "title")
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    np.testing.assert_allclose(lines["90 % intervals"].get_ydata(), [94, 93, 92])
    np.testing.assert_allclose(lines["50 % intervals"].get_xdata(), [1, 2, 3])
    heights = [bar.get_height() for bar in figure.axes[3].patches]
    np.testing.assert_allclose(np.mean(heights), 1)

"""Owns filling the dashboard of a study as it is stored, however its run ended.

Knows neither how a run is shown nor who started it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from tuner.config.loader import LoadedStudy
from tuner.errors import StoreError
from tuner.insight.dashboard import dashboard_content
from tuner.insight.leverage import explain
from tuner.insight.sentences import recommendation_lines
from tuner.store.artifacts import files_of
from tuner.store.dashboard_content import save_content
from tuner.store.place import StudyPlace, place_of
from tuner.store.stored import StoredStudy, stored_at


@contextlib.contextmanager
def filling_dashboard(loaded: LoadedStudy) -> Iterator[None]:
    """Fill the study's dashboard when the body ends: done, failed or interrupted alike."""
    try:
        yield
    finally:
        place = place_of(loaded.config.name, loaded.config.storage)
        with contextlib.suppress(StoreError):  # it was stopped before there was a study
            fill_dashboard(stored_at(place), place)


def fill_dashboard(study: StoredStudy, place: StudyPlace) -> None:
    """Notes, charts and files of a stored study; a database that is locked goes without."""
    content = dashboard_content(study, explain(study), recommendation_lines(study.recommendation))
    with contextlib.suppress(StoreError):
        save_content(place.url, study.name, replace(content, files=files_of(place)))

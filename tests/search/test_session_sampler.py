"""The sampler of a session: taught once, asked at the end of the search and to confirm."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.config.study import SearchConfig
from tuner.measure.records import Block, LoadPoint, Prompt, RequestRecord
from tuner.search.confirm import NO_OPINION
from tuner.search.history import History
from tuner.search.model_sampler import ModelSuggester, make_model_suggester
from tuner.search.reasons import random_line
from tuner.search.sampling import Ground
from tuner.search.session_sampler import opinion_of, suggester_of, with_left_out
from tuner.search.stopping import Stop, spent_budget
from tuner.space import Parameter, SearchSpace, survey

SPACE = SearchSpace((Parameter("steps", "int", (1, 2, 3, 4), flag="steps"),))
FOUND = (
    " not launched because even the upper end of what is predicted lies below the lower end of "
    "the best"
)


def ground(sampler: Any = "model") -> Ground:
    found = survey(SPACE, lambda params: ServerArgs(dict(params)), lambda args: [])
    return Ground(SPACE, found, SearchConfig(sampler=sampler, seed=1), launches=20)


@pytest.fixture
def history(objective: Any, trial: Any) -> History:
    return History(objective, [trial(0, "baseline"), trial(1, vs_baseline=1.2)])


@pytest.fixture
def suggester() -> ModelSuggester:
    return make_model_suggester(ground())


@pytest.mark.parametrize(("launches", "wall"), [(9, None), (2, 0.0)])
def test_the_end_of_a_budget_says_what_more_would_not_have_launched(
    suggester: ModelSuggester, launches: int, wall: float | None
) -> None:
    stop = spent_budget(launches, 9, wall)
    assert stop is not None
    assert with_left_out(stop, suggester) == stop
    suggester.skipped = 3
    assert with_left_out(stop, suggester).why == f"{stop.why}; 3 servers were{FOUND}"
    suggester.skipped = 1
    assert with_left_out(stop, suggester).why == f"{stop.why}; 1 server was{FOUND}"


def test_no_other_end_says_so(suggester: ModelSuggester) -> None:
    suggester.skipped = 3
    stop = Stop("the draft model cannot be used", "Check it.")
    assert with_left_out(stop, suggester) is stop


def session_of(sampler: str, history: History) -> Any:
    times: Any = (0.0, 0.0, 0.1, 0.9, 1.0, (0.1, 0.9))
    answer = RequestRecord("p", "chat", *times, 3, 2, None, "stop", text="two words")
    block = Block(0, LoadPoint(concurrency=1), 0.0, 1.0, (answer,))
    measured: Any = SimpleNamespace(blocks=(block,))
    history.baseline = measured
    prompt = Prompt("p", ({"role": "user", "content": "say"},), "chat")
    sampling = SimpleNamespace(temperature=0)
    workload = SimpleNamespace(blocks=((prompt,),), sampling=sampling)
    bench = SimpleNamespace(workload=workload, runner=SimpleNamespace(is_simulated=False))
    return SimpleNamespace(ground=ground(sampler), history=history, bench=bench, suggester=None)


class Pupil(ModelSuggester):
    """Notes the texts it is shown."""

    shown: Any = None

    def learn_texts(self, texts: Any) -> None:
        type(self).shown = texts


def test_the_confirmation_asks_the_searchs_own_sampler(history: History) -> None:
    session = session_of("model", history)
    session.suggester = Pupil(session.ground)
    assert suggester_of(session) is session.suggester
    assert Pupil.shown == [(["say"], ["two", " words"])]


def test_without_a_search_there_is_one_all_the_same(history: History) -> None:
    session = session_of("model", history)
    first = suggester_of(session)
    assert isinstance(first, ModelSuggester)
    assert suggester_of(session) is first


def test_other_samplers_have_no_opinion(history: History) -> None:
    session = session_of("random", history)
    assert opinion_of(session) == NO_OPINION
    assert random_line(session) == []

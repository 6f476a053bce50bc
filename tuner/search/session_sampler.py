"""Owns the sampler of a session: what it is taught, and what it says beside its proposals.

The confirmation asks the very sampler that searched. Other samplers than the model say nothing.
"""

from __future__ import annotations

from dataclasses import replace

from tuner.search.model_lookups import baseline_texts
from tuner.search.model_sampler import ModelSuggester
from tuner.search.opinion import Opinion, opinion
from tuner.search.sampling import Suggester, make_suggester
from tuner.search.session import Session
from tuner.search.stopping import Stop


def teach(session: Session, suggester: Suggester) -> None:
    """Show the baseline's answers to a sampler that can play lookups on them."""
    if isinstance(suggester, ModelSuggester) and not suggester.knows_texts:
        suggester.learn_texts(baseline_texts(session.bench, session.history))


def suggester_of(session: Session) -> Suggester:
    """The sampler as the search left it; without a search, one that knows as much."""
    if session.suggester is None:
        session.suggester = make_suggester(session.ground)
    teach(session, session.suggester)
    return session.suggester


def opinion_of(session: Session) -> Opinion:
    """What the model sampler says of the servers it launched; nothing for every other sampler."""
    return opinion(suggester_of(session), session.history.records, session.history.objective)


def with_left_out(stop: Stop, suggester: Suggester) -> Stop:
    """The end of a budget, and how many servers would not have been launched with more of it."""
    if not stop.is_budget or not isinstance(suggester, ModelSuggester):
        return stop
    return replace(stop, why=stop.why + suggester.left_out)

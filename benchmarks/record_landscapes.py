"""Records a landscape on real servers: every distinct server of a study, several times. One
command per study:

    python benchmarks/record_landscapes.py benchmarks/landscapes/ngram-editing.yaml --repeats 5

Servers are launched in a fresh shuffled order in every round, the baseline among them, so that a
drift of the machine falls on all alike. Each launch is appended to a log as it ends: run again,
it goes on where it stopped. The machine must be idle; nothing here notices that it was not.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.args import Params, ServerArgs
from tuner.config.loader import LoadedStudy, load_study
from tuner.engines.catalog import get_engine
from tuner.errors import TrialFailure
from tuner.events import ignore
from tuner.measure.landscape import landscape_text
from tuner.measure.metrics import summarize
from tuner.measure.prompts import build_workload
from tuner.search.bench import Bench, LaunchPlan, never
from tuner.search.candidates import Candidates, find_candidates, inspect_engine
from tuner.search.history import History
from tuner.search.landscape import landscape_of
from tuner.search.local_runner import LocalRunner
from tuner.search.objective import build_objective
from tuner.search.recording import Attempt, TrialPlan, failed_record, measured_record
from tuner.space import build_space
from tuner.store.record import TrialRecord, record_text


@dataclass(slots=True)
class Recorder:
    """Launches the servers of one study and keeps what each launch showed in a log."""

    bench: Bench
    candidates: Candidates
    history: History
    log: Path
    folder: Path

    def run(self, repeats: int, seed: int) -> list[TrialRecord]:
        """Every server `repeats` times; what the log holds is not launched again."""
        records = self.known()
        done = Counter(record.digest for record in records)
        for round_ in range(repeats):
            for params, args in self.order(seed + round_):
                if done[args.digest] > round_:
                    continue
                record = self.launch(len(records), params, args)
                records.append(record)
                done[args.digest] += 1
                with self.log.open("a", encoding="utf-8") as file:
                    file.write(record_text(record) + "\n")
                print(f"{len(records)} {record.state} {record.value} {dict(params)}", flush=True)
        return records

    def known(self) -> list[TrialRecord]:
        """What an earlier run recorded; a line cut short by a crash ends it."""
        found: list[TrialRecord] = []
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        for line in lines:
            try:
                found.append(TrialRecord.model_validate_json(line))
            except ValueError:
                break
        return found

    def order(self, seed: int) -> Iterator[tuple[Params, ServerArgs]]:
        """The baseline and every distinct server, shuffled."""
        servers: list[tuple[Params, ServerArgs]] = [({}, self.candidates.baseline)]
        servers += self.candidates.survey.servers
        random.Random(seed).shuffle(servers)
        yield from servers

    def launch(self, number: int, params: Params, args: ServerArgs) -> TrialRecord:
        """One launch, all blocks at all load points."""
        folder = self.folder / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        is_baseline = args.digest == self.candidates.baseline.digest
        attempt = Attempt(TrialPlan(number, params, args, folder, is_baseline))
        plan = LaunchPlan(
            number, args, self.bench.workload.blocks, self.bench.loads, folder, f"record-{number}"
        )
        try:
            self.bench.runner.run(self.bench, plan, attempt.run, never)
        except TrialFailure as failure:
            return failed_record(self.bench, attempt, failure)
        measurement = summarize(attempt.run.blocks, acceptance=attempt.run.acceptance)
        return measured_record(self.bench, attempt, measurement, self.history)


def recorder_of(loaded: LoadedStudy, log: Path) -> Recorder:
    """A recorder for a study file; raises TunerError where the engine cannot be used."""
    config = loaded.config
    engine = get_engine(config.engine)
    facts = inspect_engine(engine, config.engine)
    workload = build_workload(config.workload, config.search.seed)
    objective = build_objective(config.objective, workload.loads)
    bench = Bench(
        config.name, engine, facts, workload, objective, config.engine.launch_timeout, ignore,
        LocalRunner(),
    )  # fmt: skip
    candidates = find_candidates(engine, build_space(loaded), facts)
    return Recorder(bench, candidates, History(objective), log, log.with_suffix(".launches"))


def main(argv: Sequence[str] | None = None) -> int:
    """Record one study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="default: beside the study, NAME.json")
    parser.add_argument("--note", default="", help="machine, engine build, model")
    options = parser.parse_args(argv)
    loaded = load_study(options.study)
    out = options.out or options.study.with_name(f"{loaded.config.name}.json")
    records = recorder_of(loaded, out.with_suffix(".jsonl")).run(options.repeats, options.seed)
    landscape = landscape_of(
        loaded.config.name, records, note=options.note, parameters=build_space(loaded).parameters
    )
    out.write_text(landscape_text(landscape))
    print(f"{out}: {len(records)} launches")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

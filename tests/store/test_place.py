"""Where a study lives, by its file's values or by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import StoreError, UsageError
from tuner.store.place import find_place, note_place, place_of


def test_the_default_is_a_file_under_results(tmp_path: Path) -> None:
    place = place_of("demo", None, tmp_path)
    assert place.url == f"sqlite:///{tmp_path}/demo/study.db"
    assert place.results.root == tmp_path / "demo"
    assert not place.results.root.exists()


@pytest.mark.parametrize(
    ("file", "root"),
    [("demo/study.db", "demo"), ("shared.db", "demo"), ("other/study.db", "other/demo")],
)
def test_raw_files_lie_beside_an_sqlite_file(tmp_path: Path, file: str, root: str) -> None:
    place = place_of("demo", f"sqlite:///{tmp_path}/{file}", Path("elsewhere"))
    assert place.results.root == tmp_path / root


def test_raw_files_of_a_server_database_lie_under_results(tmp_path: Path) -> None:
    place = place_of("demo", "postgresql://u@h/d", tmp_path)
    assert place.results.root == tmp_path / "demo"


def test_a_study_is_found_by_name_after_its_folder_was_moved(tmp_path: Path) -> None:
    note_place(place_of("demo", None, tmp_path))
    (tmp_path / "demo").rename(tmp_path / "kept")
    found = find_place("kept", tmp_path)
    assert found.name == "demo"
    assert found.url == f"sqlite:///{tmp_path}/kept/study.db"


def test_a_study_with_its_database_elsewhere_is_found_by_name(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/shared.db"
    note_place(place_of("demo", storage))
    assert find_place("demo", tmp_path).url == storage


def test_a_folder_may_be_given_instead_of_a_name(tmp_path: Path) -> None:
    note_place(place_of("demo", None, tmp_path))
    assert find_place(str(tmp_path / "demo"), Path("nowhere")).name == "demo"


def test_a_bare_database_is_enough(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/study.db").touch()
    assert find_place("demo", tmp_path).name == "demo"


def test_a_typo_names_the_place_and_the_near_match(tmp_path: Path) -> None:
    note_place(place_of("quickstart", None, tmp_path))
    with pytest.raises(UsageError, match=f"{tmp_path}/quikstart") as caught:
        find_place("quikstart", tmp_path)
    assert caught.value.hint == "Did you mean quickstart?"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["quickstart"]


def test_a_password_is_never_written(tmp_path: Path) -> None:
    note_place(place_of("demo", "postgresql://u:secret@h/d", tmp_path))
    assert "secret" not in (tmp_path / "demo/study.json").read_text()
    with pytest.raises(UsageError, match="given as its study file"):
        find_place("demo", tmp_path)


def test_a_damaged_note_is_explained(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/study.json").write_text("{")
    with pytest.raises(StoreError, match="study's database"):
        find_place("demo", tmp_path)

"""Images of this checkout: when they are packed anew, and when they are loaded anew."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from dev.devcluster import image_cli, images
from dev.devcluster.errors import ClusterError
from dev.devcluster.images import RECIPES, Image, Recipe
from dev.devcluster.python_layer import Python


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_recipe_s_ingredients_are_there(recipe: Recipe) -> None:
    assert (recipe.package / "__init__.py").is_file()
    assert recipe.requirements is None or recipe.requirements.is_file()
    assert recipe.tags


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """An image of two files, in a checkout of its own."""
    monkeypatch.setattr(images, "CHECKOUT", tmp_path)
    monkeypatch.setattr(images, "OUTPUT", tmp_path / "out")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "requirements.txt").write_text("")
    return Recipe("app", tmp_path / "package", tmp_path / "requirements.txt", ("python", "-m", "package"), ("v1",))


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The tags of each image that was really written."""
    written: list[tuple[str, ...]] = []

    def write(recipe: Recipe, python: Python, archive: Path, names: tuple[str, ...]) -> None:
        written.append(names)
        archive.write_text("")

    monkeypatch.setattr(images, "_write", write)
    return written


def test_an_image_is_packed_once_for_the_same_ingredients(recipe: Recipe, packed: list[tuple[str, ...]]) -> None:
    first, second = images.pack(recipe), images.pack(recipe)
    assert first == second == Image(images.OUTPUT / "app.tar", first.key, ("app:v1",))
    assert packed == [("app:v1",)]


@pytest.mark.parametrize("what", ["source", "new source", "requirements", "tags", "entrypoint"])
def test_an_image_is_packed_anew_when_an_ingredient_changes(
    recipe: Recipe, packed: list[tuple[str, ...]], what: str
) -> None:
    before = images.pack(recipe).key
    match what:
        case "source":
            (recipe.package / "__init__.py").write_text("x = 1\n")
        case "new source":
            (recipe.package / "more.py").write_text("")
        case "requirements":
            recipe.requirements.write_text("x==1\n")
        case "entrypoint":
            recipe = replace(recipe, entrypoint=("python",))
    after = images.pack(recipe, ("v2",) if what == "tags" else ())
    assert after.key != before
    assert len(packed) == 2


def test_a_compiled_cache_is_no_ingredient(recipe: Recipe, packed: list[tuple[str, ...]]) -> None:
    before = images.pack(recipe).key
    (recipe.package / "__pycache__").mkdir()
    (recipe.package / "__pycache__" / "x.pyc").touch()
    assert images.pack(recipe).key == before


def test_an_image_whose_packing_failed_is_packed_again(
    recipe: Recipe, packed: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    images.pack(recipe)
    (recipe.package / "__init__.py").write_text("x = 1\n")

    def fails(*_: object) -> None:
        raise ClusterError("no space")

    with monkeypatch.context() as broken, pytest.raises(ClusterError):
        broken.setattr(images, "_write", fails)
        images.pack(recipe)
    (recipe.package / "__init__.py").write_text("")
    images.pack(recipe)
    assert len(packed) == 2


def test_pip_s_failure_names_the_file(recipe: Recipe, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fails = tmp_path / "python"
    fails.write_text("#!/bin/sh\necho no such hash >&2\nexit 1\n")
    fails.chmod(0o755)
    with pytest.raises(ClusterError, match=r"pip could not install requirements\.txt"):
        images._install(recipe.requirements, Python(fails, "3.11.0", tmp_path), tmp_path / "target")
    assert capfd.readouterr().err == "no such hash\n"


@dataclass
class Loading:
    """A provider that notes what is loaded."""

    stamps: Path | None
    loaded: list[str] = field(default_factory=list)

    def image_stamps(self) -> Path | None:
        return self.stamps

    def load(self, archive: Path) -> None:
        self.loaded.append(archive.name)


def _image(key: str, *tags: str) -> Image:
    return Image(Path(f"{key}.tar"), key, tags)


def test_a_cluster_that_holds_an_image_is_not_given_it_again(tmp_path: Path) -> None:
    cluster = Loading(tmp_path / "images")
    for key in ("one", "one", "other"):
        image_cli.load_once(cluster, _image(key, f"app:{key}"))  # type: ignore[arg-type]
    assert cluster.loaded == ["one.tar", "other.tar"]


def test_a_tag_that_went_to_another_image_is_taken_back(tmp_path: Path) -> None:
    cluster = Loading(tmp_path / "images")
    for key in ("old", "new", "old"):
        image_cli.load_once(cluster, _image(key, "app:dev"))  # type: ignore[arg-type]
    assert cluster.loaded == ["old.tar", "new.tar", "old.tar"]


def test_a_provider_that_notes_nothing_loads_every_time() -> None:
    cluster = Loading(None)
    for _ in range(2):
        image_cli.load_once(cluster, _image("one", "app:dev"))  # type: ignore[arg-type]
    assert cluster.loaded == ["one.tar", "one.tar"]


@pytest.mark.parametrize("arguments", [["llama-server"], ["operator", "--program", "x"]])
def test_a_program_belongs_to_the_image_that_is_packed_around_one(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        image_cli.main(arguments)
    assert "--program is for llama-server" in capsys.readouterr().err


def test_an_error_is_its_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path))
    assert image_cli.main(["llama-server", "--program", str(tmp_path / "missing")]) == 1
    assert capsys.readouterr().err.endswith("is no program: give the path of the one to pack\n")

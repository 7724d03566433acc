"""The tab "Attention" of TensorBoard: the viewer over the records of all runs below its log folder.

TensorBoard finds it through the entry point `tensorboard_plugins` and loads it at every start, whatever it is
started on: only what this file needs to say that there is nothing to show may be imported here.

    /index.js, …, /viewer.css   the page, from the folder `page`
    /runs                       {"runs": [{"name", "steps", "changed"}, …]}, newest first
    /view?run=NAME              what the page shows of a run, its maps left out
    /maps?run=NAME&step=500     the maps of a step, see `transformer.inspection.map_file`

What cannot be answered is said in plain text, which the page shows.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from os import path as text_paths
from os import scandir
from pathlib import Path
from typing import TYPE_CHECKING

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import Request, Response

from transformer.errors import UserError
from transformer.run_folder import RunFolder

if TYPE_CHECKING:
    from transformer.inspection.record import Record

PAGE = Path(__file__).parent / "page"
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css"}

NAME = "attention"
PROBE = "probe.json"
"""Its name in a record, which can be asked for without what reads records."""

Application = Callable[..., object]


class BadRequestError(Exception):
    """A request that cannot be answered: its status and why."""

    def __init__(self, status: int, message: str) -> None:
        """`status` is HTTP's number."""
        super().__init__(message)
        self.status = status


class AttentionTab(base_plugin.TBPlugin):  # type: ignore[misc]  # TensorBoard ships no types
    """TensorBoard's plugin."""

    plugin_name = NAME

    def __init__(self, context: base_plugin.TBContext) -> None:
        """Show what is below the folders that TensorBoard was started on."""
        self._roots = named_roots(context.logdir or "", getattr(context.flags, "logdir_spec", None) or "")

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Where the tab's script is, and what the tab is called."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="Attention", disable_reload=True)

    def is_active(self) -> bool:
        """Whether there is a record."""
        return next(find_records(self._roots), None) is not None

    def get_plugin_apps(self) -> Mapping[str, Application]:
        """What answers each address: the files that there are, and no other path."""
        files = sorted(file for file in PAGE.iterdir() if file.suffix in MEDIA_TYPES)
        routes: dict[str, Callable[[Request], Response]] = {f"/{file.name}": _serves(file) for file in files}
        routes |= {"/runs": self._runs, "/view": self._view, "/maps": self._maps}
        return {path: _application(respond) for path, respond in routes.items()}

    def _runs(self, request: Request) -> Response:
        records = sorted(
            ((record.changed, name, record.map_steps()) for name, record in self._records()), key=lambda run: -run[0]
        )
        runs = [{"name": name, "steps": steps, "changed": changed} for changed, name, steps in records]
        return _json(request, {"runs": runs})

    def _view(self, request: Request) -> Response:
        name, record = self._record(request)
        return _json(request, record.view(name, with_maps=False))

    def _maps(self, request: Request) -> Response:
        name, record = self._record(request)
        step = request.args.get("step", "")
        if not (step.isascii() and step.isdigit()):
            raise BadRequestError(400, "step: must be a whole number")
        steps = {str(known): known for known in record.map_steps()}  # a number may have too many digits to be read
        if step not in steps:
            raise BadRequestError(404, f"{name}: no maps of step {step}")
        content = record.read_maps(steps[step])
        # A run that is trained again writes other maps under the same name, so they are asked for, but rarely sent.
        response = Response(content, mimetype="application/octet-stream")
        response.set_etag(hashlib.sha256(content).hexdigest())
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "private, no-cache"
        return response.make_conditional(request)

    def _records(self) -> "Iterator[tuple[str, Record]]":
        from transformer.inspection.record import Record

        return ((name, Record(RunFolder(path).inspection_folder)) for name, path in find_records(self._roots))

    def _record(self, request: Request) -> "tuple[str, Record]":
        name = request.args.get("run")
        if not name:
            raise BadRequestError(400, "run: is missing; name one of those that `runs` lists")
        for other, record in self._records():
            if other == name:
                return name, record
        raise BadRequestError(404, f"{name}: no run of that name has a record of its attention")


def named_roots(logdir: str, logdir_spec: str) -> dict[str, Path]:
    """The folders that TensorBoard shows, by the name that it puts before their runs; "" for none.

    `logdir_spec` is a list of NAME:FOLDER or FOLDER, with commas between.
    """
    if logdir_spec and logdir in ("", logdir_spec):
        parts = [part.partition(":") for part in logdir_spec.split(",")]
        return {name if colon else "": Path(folder if colon else name).expanduser() for name, colon, folder in parts}
    return {"": Path(logdir).expanduser()} if logdir else {}


def find_records(roots: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Every run with a record at or below the roots, those near them first: its name and its folder.

    A name is the path from its root, as TensorBoard shows it; a root that is a run has its own name.
    """
    for group, root in roots.items():
        for folder in _runs_below(root):
            below = folder.relative_to(root).as_posix()
            name = "/".join(part for part in (group, below) if part not in ("", "."))
            yield name or root.resolve().name, folder


def _runs_below(root: Path) -> Iterator[Path]:
    """Folders with a record, level by level; what is inside a run is not looked at, and no folder twice."""
    level, seen = [root], set()
    while level:
        below: list[Path] = []
        for folder in level:
            real = text_paths.realpath(folder)
            if real in seen:
                continue
            seen.add(real)
            if (RunFolder(folder).inspection_folder / PROBE).is_file():
                yield folder
            elif not RunFolder(folder).config_file.is_file():
                below += _folders(folder)
        level = below


def _folders(folder: Path) -> list[Path]:
    try:
        with scandir(folder) as entries:
            return sorted(folder / entry.name for entry in entries if entry.is_dir())
    except OSError:  # unreadable, or gone since it was listed
        return []


def _application(respond: Callable[[Request], Response]) -> Application:
    @Request.application
    def answer(request: Request) -> Response:
        try:
            if request.method not in ("GET", "HEAD"):
                raise BadRequestError(405, "only GET is answered")
            return respond(request)
        except BadRequestError as error:
            return _respond(request, str(error), "text/plain", code=error.status)
        except (UserError, OSError) as error:  # a damaged record, or one that is being deleted
            return _respond(request, str(error), "text/plain", code=500)

    return answer


def _serves(file: Path) -> Callable[[Request], Response]:
    return lambda request: _respond(request, file.read_bytes(), MEDIA_TYPES[file.suffix])


def _json(request: Request, value: object) -> Response:
    return _respond(request, json.dumps(value, allow_nan=False), "application/json")


def _respond(request: Request, content: str | bytes, media_type: str, *, code: int = 200) -> Response:
    """TensorBoard's own way to answer: compressed, not cached, and of the type that it says."""
    response: Response = http_util.Respond(request, content, media_type, code=code)
    return response

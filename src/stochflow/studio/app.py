"""The pages of a studio and what they ask for."""

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import stochflow
from stochflow import ConfigError, DataError, StochflowError
from stochflow.studio.campaign_view import campaign_view
from stochflow.studio.folder import Folder, clean_name
from stochflow.studio.forms import Ask, CampaignForm, RunForm, Target, Tell, read_form
from stochflow.studio.guard import BodyTooLargeError, Guard
from stochflow.studio.jobs import Jobs
from stochflow.studio.run_view import run_view
from stochflow.studio.tables import describe_table

PAGES = Path(__file__).parent / "pages"
_TITLES = {"home": "Studio", "new": "Something new", "run": "Run", "campaign": "Campaign"}
_FILES = ("samples.csv", "samples.fasta", "summary.json", "config.yaml", "metrics.jsonl", "held_out.csv")
# a report has scripts of its own: they may run, as somebody without any right here
_REPORT_POLICY = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; " \
    "style-src 'unsafe-inline'; img-src data: blob:"  # fmt: skip


class Studio:
    """What pages ask for, by name; every answer is JSON or a file.

    Args:
        oracles: names of score functions that may run, as they were given when the studio was started.
    """

    def __init__(self, folder: Folder, oracles: Sequence[str]) -> None:
        self._folder, self._oracles, self._jobs = folder, tuple(oracles), Jobs(folder)

    @property
    def jobs(self) -> Jobs:
        return self._jobs

    def overview(self, _: dict[str, str]) -> dict[str, Any]:
        """Runs, campaigns and jobs of the folder."""
        found = stochflow.status(self._folder.root)
        runs = [asdict(run) | {"path": self._folder.relative(run.path)} for run in found.runs]
        campaigns = [asdict(each) | {"path": self._folder.relative(each.path)} for each in found.campaigns]
        known = {each["path"] for each in [*runs, *campaigns]}
        jobs = [job.as_dict() for job in self._jobs.all()]
        lost = [job for job in jobs if job["target"] not in known and job["state"] != "done"]
        return {
            "folder": str(self._folder.root),
            "oracles": self._oracles,
            "runs": runs,
            "campaigns": campaigns,
            "lost": lost,
            "busy": [job["target"] for job in jobs if job["state"] == "running"],
        }

    def run(self, asked: dict[str, str]) -> dict[str, Any]:
        """A run as it is now; one that has not begun yet has a job alone."""
        path = self._folder.inside(asked.get("path", ""))
        view = run_view(path) if (path / "config.yaml").is_file() else {"state": "absent"}
        return view | {"name": path.name, "path": self._folder.relative(path), "job": self._latest(path)}

    def campaign(self, asked: dict[str, str]) -> dict[str, Any]:
        """A campaign as it is now, with the plate of one ask."""
        path = self._folder.inside(asked.get("path", ""))
        number = asked.get("ask", "")
        view = campaign_view(path, int(number) if number.isdecimal() and len(number) < 9 else None)
        return view | {"name": path.name, "path": self._folder.relative(path), "job": self._latest(path)}

    def start_run(self, content: Any) -> dict[str, Any]:
        """Train in a process of its own."""
        form = read_form(RunForm, content)
        target = self._folder.fresh(form.name)
        arguments = form.arguments(self._folder.stored, self._oracles)
        self._jobs.start("train", target, arguments)
        return {"path": self._folder.relative(target)}

    def continue_run(self, content: Any) -> dict[str, Any]:
        """Go on with a run that was stopped, from its last checkpoint."""
        target = self._folder.inside(read_form(Target, content).path)
        task = stochflow.load(target).config.task
        arguments: dict[str, Any] = {"resume": True}
        if task.startswith("oracle:"):
            arguments["oracle"] = task.removeprefix("oracle:")
            if arguments["oracle"] not in self._oracles:
                raise ConfigError(
                    f"this run calls '{arguments['oracle'][:100]}', which was not named when this studio was started; "
                    "start it with --oracle to allow it"
                )
        self._jobs.start("train", target, arguments)
        return {"path": self._folder.relative(target)}

    def stop(self, content: Any) -> dict[str, Any]:
        """End the job that is at work on something; a run keeps all it has."""
        self._jobs.stop(self._folder.relative(self._folder.inside(read_form(Target, content).path)))
        return {}

    def start_campaign(self, content: Any) -> dict[str, Any]:
        """Begin a campaign, and tell it the uploaded table; where that is refused, there is no campaign either."""
        form = read_form(CampaignForm, content)
        target = self._folder.fresh(form.name)
        arguments = form.arguments(self._folder.stored)
        self._folder.hidden.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder.hidden) as staging:
            made = stochflow.Campaign.create(Path(staging) / "new", **arguments)
            told = str(made.tell(self._folder.stored(form.upload))) if form.upload else ""
            (Path(staging) / "new").rename(target)
        return {"path": self._folder.relative(target), "said": told}

    def ask(self, content: Any) -> dict[str, Any]:
        """Choose the next plate, in a process of its own."""
        form = read_form(Ask, content)
        target = self._folder.inside(form.path)
        stochflow.Campaign.open(target)
        self._jobs.start("ask", target, {"num": form.num})
        return {}

    def tell(self, content: Any) -> dict[str, Any]:
        """Record the results of an uploaded file."""
        form = read_form(Tell, content)
        told = stochflow.Campaign.open(self._folder.inside(form.path)).tell(self._folder.stored(form.upload))
        ignored = f" Columns that were not read: {', '.join(told.ignored)}." if told.ignored else ""
        return {"said": f"{told}{ignored}"}

    def undo(self, content: Any) -> dict[str, Any]:
        """Take the last tell back."""
        path = self._folder.inside(read_form(Target, content).path)
        number, file = stochflow.Campaign.open(path).undo()
        return {"said": f"Tell {number} ({file}) was taken back."}

    def upload(self, name: str, content: bytes) -> dict[str, Any]:
        """Keep a file, and say what is in it where it is a table."""
        if not content:
            raise DataError("the file is empty; choose another one")
        key = self._folder.store(name, content)
        try:
            found = describe_table(self._folder.stored(key))
        except StochflowError as error:
            return {"upload": key, "name": clean_name(name), "problem": str(error).replace(str(self._folder.root), "")}
        return {"upload": key, "name": clean_name(name), "table": found}

    def download(self, asked: dict[str, str]) -> Response:
        """A file of a run, or an ask of a campaign in some layout."""
        path = self._folder.inside(asked.get("path", ""))
        name = asked.get("file", "")
        if (path / "campaign.sqlite").is_file():
            return self._exported(path, name, asked.get("ask", ""))
        run = stochflow.load(path)  # and refuses links that lead out of it
        if name not in _FILES or not (run.path / name).is_file():
            raise DataError(f"this run has no file '{name[:40]}'; choose one of those that the page lists")
        return FileResponse(run.path / name, filename=f"{path.name}-{name}")

    def report(self, asked: dict[str, str]) -> Response:
        """The page that `stochflow report` writes."""
        path = self._folder.inside(asked.get("path", ""))
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "report.html"
            if (path / "campaign.sqlite").is_file():
                stochflow.Campaign.open(path).report(out)
            else:
                stochflow.report(path, out)
            return HTMLResponse(out.read_bytes(), headers={"Content-Security-Policy": _REPORT_POLICY})

    def _exported(self, path: Path, name: str, ask: str) -> Response:
        layout, _, ending = name.partition(".")
        folder = tempfile.mkdtemp()
        try:
            out = Path(folder) / f"{path.name}-{clean_name(ask)}-{clean_name(layout)}.{clean_name(ending)}"
            stochflow.Campaign.open(path).export(out, layout, int(ask) if ask.isdecimal() else None)
            headers = {"Content-Disposition": f'attachment; filename="{out.name}"'}
            return Response(out.read_bytes(), media_type="text/csv; charset=utf-8", headers=headers)
        finally:
            shutil.rmtree(folder)

    def _latest(self, path: Path) -> dict[str, Any] | None:
        about = self._jobs.about(self._folder.relative(path))
        return about[0].as_dict() if about else None


def application(studio: Studio, token: str, host: str = "127.0.0.1") -> Starlette:
    """The application: pages, what they ask for, and who may ask."""
    looks = {"overview": studio.overview, "run": studio.run, "campaign": studio.campaign}
    acts = {
        "runs": studio.start_run,
        "continue": studio.continue_run,
        "stop": studio.stop,
        "campaigns": studio.start_campaign,
        "ask": studio.ask,
        "tell": studio.tell,
        "undo": studio.undo,
    }
    routes = [Route("/" if name == "home" else f"/{name}", _page(name)) for name in _TITLES]
    routes += [Route(f"/api/{name}", _answering(look)) for name, look in looks.items()]
    routes += [Route(f"/api/{name}", _acting(act), methods=["POST"]) for name, act in acts.items()]
    routes += [Route("/download", _answering(studio.download)), Route("/report", _answering(studio.report))]

    async def upload(request: Request) -> Response:
        content = await request.body()
        return await _answered(lambda: studio.upload(request.query_params.get("name", ""), content))

    routes += [Route("/api/upload", upload, methods=["POST"])]
    files = Mount("/files", StaticFiles(directory=PAGES))
    handlers: Any = {BodyTooLargeError: _too_large}
    return Starlette(
        routes=[*routes, files], middleware=[Middleware(Guard, token=token, host=host)], exception_handlers=handlers
    )


def _page(name: str) -> Callable[[Request], Response]:
    """A page: the frame that all share, with what is its own inside."""
    frame = Template((PAGES / "frame.html").read_text(encoding="utf-8"))
    body = (PAGES / f"{name}.html").read_text(encoding="utf-8")
    text = frame.substitute(title=_TITLES[name], name=name, body=body)

    def shown(_: Request) -> Response:
        return HTMLResponse(text)

    return shown


def _answering(look: Callable[[dict[str, str]], Any]) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        return await _answered(lambda: look(dict(request.query_params)))

    return answer


def _acting(act: Callable[[Any], Any]) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        try:
            content = json.loads(await request.body())
        except (ValueError, RecursionError):
            return JSONResponse({"error": "what the page has sent is no JSON; reload it"}, 400)
        return await _answered(lambda: act(content))

    return answer


async def _answered(work: Callable[[], Any]) -> Response:
    """The answer of some work in a thread; an error that a user can mend is one sentence."""
    try:
        found = await run_in_threadpool(work)
    except StochflowError as error:
        return JSONResponse({"error": str(error)}, 422)
    except OSError as error:
        return JSONResponse({"error": f"{error.strerror}; free the space or allow writing there"}, 422)
    return found if isinstance(found, Response) else JSONResponse(found)


async def _too_large(_: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), 413)

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import stochflow
from stochflow import Campaign
from stochflow.studio import jobs as jobs_module
from stochflow.studio.folder import Folder
from tests.studio.conftest import Asking

TABLE = b"sequence,score\nACGT,1\nACGA,2\nACGC,3.5\nAAAA,0\nCCCC,1\nGGTT,2\n"
TINY = ("model.width=8", "model.num_layers=1", "evaluation.num_samples=40", "evaluation.every=0.5")


def upload(ask: Asking, content: bytes, name: str = "known.csv") -> str:
    return str(ask(f"/api/upload?name={name}", content).content["upload"])


def begin(ask: Asking, **more: Any) -> Any:
    form = {"name": "lab one", "upload": upload(ask, TABLE), "length": 4, "batch": 4, "noise": "0.1"} | more
    return ask("/api/campaigns", form)


def test_a_campaign_goes_from_a_table_to_a_round_of_results(ask: Asking, folder: Folder) -> None:
    made = begin(ask)
    assert made.content == {
        "path": "lab-one",
        "said": "Tell 1: 6 new values, 6 of designs that were not ordered here.",
    }
    plate = Campaign.open(folder.root / "lab-one").ask()
    view = ask("/api/campaign?path=lab-one").content
    (shown,) = view["plates"]
    assert [well["design"] for well in shown["wells"]] == list(plate["order"])
    assert [(well["row"], well["column"]) for well in shown["wells"]] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    results = f"id,score\n{plate['id'][0]},5\n{plate['id'][1]},\n".encode()
    told = ask("/api/tell", {"path": "lab-one", "upload": upload(ask, results, "r.csv")})
    assert told.content == {"said": "Tell 2: 2 new values, 1 failed."}
    view = ask("/api/campaign?path=lab-one&ask=1").content
    assert [well["state"] for well in view["plates"][0]["wells"]] == ["measured", "failed", "pending", "pending"]
    assert view["rounds"][0] == {
        **{"name": "before", "measured": 6, "mean": pytest.approx(9.5 / 6), "best": 3.5},
        **{"ordered": 0, "pending": 0, "failed": 0},
    }
    assert view["rounds"][1]["best"] == 5.0
    assert ask("/api/undo", {"path": "lab-one"}).content == {"said": "Tell 2 (r.csv) was taken back."}
    assert ask("/api/campaign?path=lab-one").content["status"]["num_pending"] == 4


def test_a_table_that_is_refused_leaves_no_campaign(ask: Asking, folder: Folder) -> None:
    refused = begin(ask, upload=upload(ask, b"sequence,score\nACGTX,1\n"))
    assert refused.code == 422
    assert refused.content["error"]
    assert [path.name for path in folder.root.iterdir()] == [".studio"]
    assert [path.name for path in folder.hidden.iterdir()] == ["uploads"]


def test_a_name_that_is_taken_is_refused(ask: Asking) -> None:
    begin(ask)
    assert begin(ask).content["error"].startswith("there is a 'lab-one' in this folder already")


@pytest.mark.parametrize(
    ("file", "start"),
    [
        ("plate.csv", b"id,order,plate,well,"),
        ("map.csv", b"p1,1,2,3"),
        ("fasta.fasta", b">a1_001 p1 A1\n"),
        ("idt.csv", b"Well Position,Name,Sequence\n"),
        ("twist.csv", b"name,sequence\n"),
    ],
)
def test_a_plate_is_downloaded_in_every_layout(file: str, start: bytes, ask: Asking, folder: Folder) -> None:
    begin(ask)
    Campaign.open(folder.root / "lab-one").ask()
    answer = ask(f"/download?path=lab-one&file={file}&ask=1")
    assert answer.body.startswith(start)
    assert answer.headers["content-disposition"].startswith('attachment; filename="lab-one-1-')


@pytest.mark.parametrize("file", ["../../x.csv", "plate./../x", "nonsense.csv", "plate.sqlite", ""])
def test_no_download_leads_out_of_a_campaign(file: str, ask: Asking, folder: Folder) -> None:
    begin(ask)
    Campaign.open(folder.root / "lab-one").ask()
    assert ask(f"/download?path=lab-one&file={file}&ask=1").code == 422


def a_run(folder: Folder, **more: Any) -> Path:
    given: dict[str, Any] = {"trajectories": 128, "settings": TINY, "method": "sgfn-db", "device": "cpu"}
    return stochflow.train(**given | more, out=folder.root / "run").path


def test_a_run_is_shown_with_its_designs_curves_and_diagnosis(ask: Asking, folder: Folder) -> None:
    run = stochflow.load(a_run(folder))
    view = ask("/api/run?path=run").content
    assert (view["state"], view["share"], view["title"]) == ("finished", 1.0, "tfbind8, sgfn-db, noise 0.25, seed 0")
    assert view["figures"]["regret"] == run.summary.regret
    curves = {curve["name"]: curve for curve in view["curves"]}
    assert curves["regret"]["points"][0] == [0.0, run.metrics["start_regret"].dropna().iloc[0]]
    assert curves["regret"]["points"][-1] == [128.0, run.metrics["regret"].iloc[-1]]
    assert curves["mean_score"]["line"]["value"] == run.summary.attainable_score
    scores = [row[1] for row in view["designs"]["rows"]]
    assert scores == sorted(scores, reverse=True)
    assert view["designs"]["columns"] == ["design", "score", "drawn"]
    assert view["doctor"]["verdict"] == stochflow.doctor(run)[0].verdict
    assert ask("/download?path=run&file=samples.fasta").body.startswith(b">design_1 ")
    for name in ("../run/config.yaml", "checkpoint", ".lock", ""):
        assert ask(f"/download?path=run&file={name}").code == 422


def test_a_run_that_goes_on_is_not_called_ill_for_it(ask: Asking, folder: Folder) -> None:
    inside, leave = threading.Event(), threading.Event()

    def listen(record: dict[str, float], share: float) -> None:
        inside.set()
        leave.wait(60)

    thread = threading.Thread(target=a_run, args=(folder,), kwargs={"listen": listen, "trajectories": 640})
    thread.start()
    assert inside.wait(60)
    view = ask("/api/run?path=run").content
    leave.set()
    thread.join()
    assert (view["state"], view["doctor"]["verdict"]) == ("training", "Nothing is wrong so far.")
    assert 0 < view["share"] < 1
    assert view["left"] > 0


def test_a_report_may_run_its_script_and_nothing_else(ask: Asking, folder: Folder) -> None:
    begin(ask)
    answer = ask("/report?path=lab-one")
    assert b"Campaign new" not in answer.body
    assert b"Campaign lab-one" in answer.body
    assert answer.headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none';")


def test_a_run_of_an_oracle_goes_on_only_if_it_was_named(ask: Asking, folder: Folder) -> None:
    path = stochflow.train(
        oracle=lambda words: [word.count("A") for word in words],
        **{
            "length": 4,
            "alphabet": "dna",
            "method": "random",
            "oracle_calls": 16,
            "settings": TINY,
            "out": folder.root / "own",
        },
    ).path
    text = (path / "config.yaml").read_text()
    lines = [line for line in text.splitlines()[1:] if not line.startswith("task:")]
    (path / "config.yaml").write_text("\n".join([*lines, "task: oracle:os:system", ""]))
    refused = ask("/api/continue", {"path": "own"})
    assert "this run calls 'os:system', which was not named" in refused.content["error"]


def test_jobs_without_a_run_are_shown_with_their_error(ask: Asking, folder: Folder) -> None:
    path = folder.hidden / "jobs" / "one"
    path.mkdir(parents=True)
    (path / jobs_module.JOB).write_text(json.dumps({"kind": "train", "target": "gone", "begun": "now"}))
    (path / jobs_module.RESULT).write_text(json.dumps({"error": "no such task"}))
    (job,) = ask("/api/overview").content["lost"]
    assert (job["target"], job["state"], job["error"]) == ("gone", "failed", "no such task")
    assert ask("/api/run?path=gone").content["state"] == "absent"


@pytest.mark.parametrize("name", ["stop", "continue", "ask", "tell", "undo", "runs", "campaigns"])
@pytest.mark.parametrize("body", [b"", b"[", b"null", b'{"path": ".."}', b'{"path": 1}', b"[" * 100_000])
def test_nonsense_is_answered_with_a_sentence(name: str, body: bytes, ask: Asking) -> None:
    answer = ask(f"/api/{name}", body)
    assert answer.code in (400, 422)
    assert answer.content["error"]


def test_a_file_that_is_no_table_is_kept_and_said(ask: Asking) -> None:
    answer = ask("/api/upload?name=channel.yaml", b"letters: ACGT\n\0").content
    assert answer["name"] == "channel.yaml"
    assert answer["problem"].endswith("is not a text file; save the table as CSV in UTF-8")
    assert ask("/api/upload?name=a.csv", b"").code == 422

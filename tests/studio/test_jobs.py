import json
import os
import signal
from pathlib import Path

import pytest

from stochflow import Campaign, ConfigError
from stochflow.studio.folder import Folder
from stochflow.studio.jobs import Job, Jobs


def only(jobs: Jobs) -> Job:
    (job,) = jobs.all()
    return job


def wait(jobs: Jobs) -> Job:
    for child in jobs._children:
        child.wait(60)
    return only(jobs)


def test_a_job_does_its_work_and_is_seen_by_a_studio_that_was_started_again(folder: Folder) -> None:
    Campaign.create(folder.root / "lab", length=4, batch=4)
    jobs = Jobs(folder)
    jobs.start("ask", folder.root / "lab", {"num": 4})
    assert only(Jobs(folder)).state == "running"
    with pytest.raises(ConfigError, match="a job is at work on 'lab' already"):
        jobs.start("ask", folder.root / "lab", {"num": 4})
    assert wait(jobs).state == "done"
    assert only(Jobs(folder)) == only(jobs)
    assert len(Campaign.open(folder.root / "lab").asked()) == 4


def test_an_error_of_the_user_is_kept_as_its_sentence(folder: Folder) -> None:
    jobs = Jobs(folder)
    jobs.start("train", folder.root / "run", {"task": "nonsense"})
    job = wait(jobs)
    assert job.state == "failed"
    assert "unknown task 'nonsense'" in job.error
    assert not (folder.root / "run").exists()


def test_a_killed_job_is_told_from_one_that_goes_on(folder: Folder) -> None:
    Campaign.create(folder.root / "lab", length=4, batch=4)
    jobs = Jobs(folder)
    key = jobs.start("ask", folder.root / "lab", {"num": 4})
    os.kill(int((folder.hidden / "jobs" / key / "pid").read_text()), signal.SIGKILL)
    assert wait(jobs).state == "killed"
    assert Campaign.open(folder.root / "lab").status().num_ordered == 0
    with pytest.raises(ConfigError, match="no job of this studio is at work on 'lab'"):
        jobs.stop("lab")


def test_folders_that_are_no_jobs_are_not_listed(folder: Folder) -> None:
    for number, text in enumerate(["", "[]", '{"kind": 1}', json.dumps("x")]):
        path = folder.hidden / "jobs" / str(number)
        path.mkdir(parents=True)
        (path / "job.json").write_text(text)
    assert Jobs(folder).all() == []


def test_what_a_job_shall_do_stands_in_no_file(folder: Folder) -> None:
    jobs = Jobs(folder)
    key = jobs.start("train", folder.root / "run", {"task": "nonsense"})
    wait(jobs)
    files = [path for path in Path(folder.hidden / "jobs" / key).iterdir() if b'"arguments"' in path.read_bytes()]
    assert files == []

"""A studio in a real browser: upload, start, watch, tell, ask, download; a reload and a killed worker lose nothing."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.by import By

from stochflow import Campaign, status
from tests.browser import Browser, browser

__all__ = ["browser"]  # a fixture
DESIGNS = ["".join("ACGT"[number >> 2 * place & 3] for place in range(5)) for number in range(0, 1024, 40)]


@dataclass
class Site:
    """A studio that runs in a process of its own."""

    address: str
    folder: Path
    process: subprocess.Popen[str]

    def page(self, path: str) -> str:
        return f"{self.address.partition('/?')[0]}/{path}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("studio")
    words = [sys.executable, "-m", "stochflow", "studio", str(folder), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "open this address" in process.stdout.readline()
        yield Site(process.stdout.readline().strip(), folder, process)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[1] == ""
    assert process.returncode == 0


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "known scores.csv"
    path.write_text("sequence,score\n" + "".join(f"{word},{word.count('G')}\n" for word in DESIGNS))
    return path


@pytest.fixture
def downloads(browser: Browser, tmp_path: Path) -> Path:
    """An empty folder into which the browser downloads."""
    behaviour = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    return tmp_path


def click(browser: Browser, selector: str) -> None:
    browser.driver.find_element(By.CSS_SELECTOR, selector).click()


def type_in(browser: Browser, selector: str, text: str) -> None:
    field = browser.driver.find_element(By.CSS_SELECTOR, selector)
    browser.ask("if (arguments[0].type !== 'file') arguments[0].value = ''", field)
    field.send_keys(text)


def text_of(browser: Browser, selector: str) -> str:
    return str(browser.ask("return document.querySelector(arguments[0]).textContent", selector))


def at_home(browser: Browser, site: Site) -> None:
    """No page has asked anybody but the studio, or complained."""
    hosts = {urlsplit(address).netloc for address in browser.requests()}
    assert hosts == {urlsplit(site.address).netloc}
    assert browser.complaints() == []
    assert browser.overflow() <= 0


def test_a_campaign_from_upload_to_results(browser: Browser, site: Site, table: Path, downloads: Path) -> None:
    browser.visit(site.address)
    browser.wait_for("return document.querySelector('#campaigns a')")
    click(browser, "#campaigns a")
    type_in(browser, "#file", str(table))
    browser.wait_for("return document.querySelector('#table .good')")
    assert text_of(browser, "#table .good") == "known-scores.csv: 26 rows, sequences of 5 letters (dna)."
    type_in(browser, "[name=batch]", "12")
    browser.ask("const kind = document.querySelector('[name=kind]'); kind.value = 'slip';"
                "kind.dispatchEvent(new Event('change', {bubbles: true}))")  # fmt: skip
    at_home(browser, site)
    click(browser, "button.big")
    browser.wait_for("return location.pathname === '/campaign' && document.querySelector('#tiles b')")
    click(browser, "#ask button")
    browser.wait_for("return document.querySelector('#notice .good')?.textContent.startsWith('Plate 1 is ready')")
    campaign = Campaign.open(site.folder / "known-scores")
    assert (campaign.settings.noise, campaign.settings.length) == ("0.02", 5)
    plate = campaign.asked()
    wells = browser.ask("return [...document.querySelectorAll('.full')].map(well => well.ariaLabel.split(' ')[1])")
    assert wells == list(plate["order"])
    click(browser, "#layouts a")
    browser.wait_for("return true")
    results = downloads / "results.csv"
    plate[["id"]].assign(score=range(12)).to_csv(results, index=False)
    type_in(browser, "#results", str(results))
    click(browser, "#tell button")
    browser.wait_for("return document.querySelector('#notice .good')?.textContent === 'Tell 2: 12 new values.'")
    browser.wait_for("return document.querySelectorAll('.full.measured').length === 12")
    assert campaign.status().num_pending == 0
    (downloaded,) = downloads.glob("known-scores-1-plate.csv")
    assert downloaded.read_text() == plate.to_csv(index=False)
    at_home(browser, site)


def test_a_run_is_watched_and_survives_a_reload_and_a_killed_worker(browser: Browser, site: Site, table: Path) -> None:
    browser.visit(site.address)
    browser.visit(site.page("new#run"))
    type_in(browser, "#file", str(table))
    browser.wait_for("return document.querySelector('#table .good')")
    type_in(browser, "[name=name]", "trained")
    browser.ask("document.querySelector('[name=budget]').value = 200000")
    click(browser, "button.big")
    browser.wait_for("return location.pathname === '/run'")
    browser.wait_for("return document.querySelector('#curves svg')")
    first = text_of(browser, "#progress p")
    browser.wait_for(f"return document.querySelector('#progress p').textContent !== {first!r}")
    browser.driver.refresh()
    browser.wait_for("return document.querySelector('#state').textContent === 'training'")
    assert text_of(browser, "#doctor .notice") == "Nothing is wrong so far."
    (pid,) = _pids(site, "trained")
    os.kill(pid, signal.SIGKILL)
    browser.wait_for("return document.querySelector('#state').textContent === 'stopped'")
    assert text_of(browser, "#notice p") == (
        "It was not finished: its process was killed; everything that it had written down is kept. "
        "Go on from the last checkpoint."
    )
    click(browser, "#actions .primary")
    browser.wait_for("return document.querySelector('#state').textContent === 'training'")
    click(browser, "#actions button")  # stop
    browser.wait_for("return document.querySelector('#designs tbody tr')")
    browser.wait_for("return document.querySelector('#actions .primary')")  # it might go on once more
    at_home(browser, site)
    (run,) = status(site.folder).runs
    assert (run.state, run.path.name) == ("interrupted", "trained")
    shown = browser.ask("return [...document.querySelectorAll('#designs tr td:nth-child(2)')].map(e => e.textContent)")
    assert len(shown) == len(set(shown)) > 10
    assert all(re.fullmatch("[ACGT]{5}", word) for word in shown)


def _pids(site: Site, target: str) -> list[int]:
    found = [path.parent for path in site.folder.glob(".studio/jobs/*/job.json") if f'"{target}"' in path.read_text()]
    return [int((path / "pid").read_text()) for path in found]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize("page", ["", "new", "new#run", "run?path=trained", "campaign?path=known-scores"])
def test_pages_fit_their_screen_and_can_be_read(
    page: str, width: int, scheme: str, browser: Browser, site: Site
) -> None:
    browser.visit(site.page(page), width, scheme)
    browser.wait_for("return document.readyState === 'complete' && document.querySelector('main h2, main legend')")
    browser.wait_for("return ![...document.querySelectorAll('.tiles, .cards')].some(part => !part.children.length)")
    assert browser.ask(FAINT) == []
    assert browser.ask(NAMELESS) == []
    at_home(browser, site)


def test_every_well_is_reached_by_the_keyboard(browser: Browser, site: Site) -> None:
    browser.visit(site.page("campaign?path=known-scores"))
    browser.wait_for("return document.querySelector('.full')")
    first = browser.driver.find_element(By.CSS_SELECTOR, ".full")
    first.send_keys("\ue014")  # arrow to the right
    assert browser.ask("return document.activeElement.ariaLabel").startswith("A2: ")
    assert text_of(browser, "#well").startswith("A2: ")


def test_hostile_text_stays_text(browser: Browser, site: Site, tmp_path: Path) -> None:
    browser.visit(site.page("new"))
    poison = tmp_path / "a.csv"
    poison.write_text('sequence,"<img src=x onerror=window.hacked=1>"\nACGT,"<script>window.hacked=1</script>"\n')
    type_in(browser, "#file", str(poison))
    browser.wait_for("return document.querySelector('#table td')")
    assert "<img" in text_of(browser, "#table th:nth-child(2)")
    assert browser.ask("return typeof window.hacked") == "undefined"
    at_home(browser, site)


# text whose contrast with what lies behind it is below 4.5 : 1, as far as grounds are plain colours
FAINT = """
function parts(colour) { return colour.match(/[\\d.]+/g).map(Number); }
function light(colour) {
  const [r, g, b] = parts(colour).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function ground(element) {
  for (let e = element; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if ((parts(colour)[3] ?? 1) > 0.99) return colour;
  }
  return "rgb(255, 255, 255)";
}
return [...document.querySelectorAll("main *, header *")].filter(e => e.offsetParent && !e.disabled &&
  [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())).filter(e => {
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05) < 4.5;
  }).map(e => e.outerHTML.slice(0, 80));"""
# what a reader's program could not name
NAMELESS = """
return [...document.querySelectorAll("a, button, input, select")].filter(e => e.offsetParent &&
  !(e.textContent.trim() || e.ariaLabel || (e.labels && e.labels.length))).map(e => e.outerHTML.slice(0, 80));"""

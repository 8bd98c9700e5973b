"""Pages in a real browser: drawn, quiet, at home on every screen, and without a word to the network.

Debian's Chromium without a window; it is installed when it is missing.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from filelock import FileLock
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from stochflow import Campaign, api
from stochflow.cli import app as cli

PROGRAMS = ("chromium", "chromedriver")
PACKAGES = ("chromium", "chromium-driver")
_INSTALL_SECONDS = 600
_WAIT_SECONDS = 30

# places of figures that can be seen, and whether something with a size is drawn in each
DRAWN = """
return [...document.querySelectorAll("[data-figure]")].filter(e => e.offsetParent).map(function (element) {
  const marks = [...element.querySelectorAll(".cartesianlayer .mlayer :is(path, image)")];
  return marks.some(function (mark) {
    const box = mark.getBoundingClientRect();
    return box.width + box.height > 1;
  });
});"""


@dataclass
class Browser:
    """Opens pages as a reader with some screen and some taste would, and hears what they complain about."""

    driver: Chrome
    folder: Path
    width: int = 0

    def open(self, page: Path, width: int = 1280, scheme: str = "light") -> None:
        self.width = width
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.prefer(scheme)
        self.driver.get(page.resolve().as_uri())
        self.wait_for_figures()

    def prefer(self, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def ask(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait_for(self, script: str) -> None:
        WebDriverWait(self.driver, _WAIT_SECONDS, poll_frequency=0.05).until(lambda _: self.ask(script))

    def wait_for_figures(self) -> int:
        """Wait until every figure that can be seen is drawn; how many there are."""
        WebDriverWait(self.driver, _WAIT_SECONDS, poll_frequency=0.05).until(lambda _: all(self.ask(DRAWN)))
        return len(self.ask(DRAWN))

    def complaints(self) -> list[str]:
        """Messages on the console since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was opened; images that stand in the page itself are none."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [event["params"]["request"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [request["url"] for request in asked if not request["url"].startswith("data:")]

    def overflow(self) -> int:
        """Pixels by which the page is wider than the screen. A phone's own idea of its width grows with the page."""
        return int(self.ask("return document.documentElement.scrollWidth")) - self.width

    def screenshot(self, name: str) -> Path:
        """A picture of the whole page."""
        size = self.ask("const e = document.documentElement; return [e.clientWidth, e.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        options = {"captureBeyondViewport": True, "clip": clip}
        picture = self.driver.execute_cdp_cmd("Page.captureScreenshot", options)
        path = self.folder / f"{name}.png"
        path.write_bytes(base64.b64decode(picture["data"]))
        return path


@pytest.fixture(scope="module")  # what it shows costs time as long as it is open
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of a process."""
    _provide(tmp_path_factory.getbasetemp().parent / "browser.lock")
    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield Browser(driver, tmp_path_factory.mktemp("screenshots"))
    driver.quit()


def _provide(lock: Path) -> None:
    """Install the browser if it is missing; without a way to, skip, but never where everything must be tested."""
    with FileLock(lock):
        if all(map(shutil.which, PROGRAMS)):
            return
        problem = _install()
    if problem is None:
        return
    if os.environ.get("CI"):
        pytest.fail(problem)
    pytest.skip(problem)


def _install() -> str | None:
    """Install with apt; why it did not work, or None."""
    remedy = f"install {' and '.join(PACKAGES)} to test pages in a browser"
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return f"there is no apt-get here that this user may use; {remedy}"
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", *PACKAGES]):
        try:
            done = subprocess.run(
                ["apt-get", *words], env=quiet, capture_output=True, text=True, timeout=_INSTALL_SECONDS
            )
        except subprocess.TimeoutExpired:
            return f"apt-get {words[0]} took more than {_INSTALL_SECONDS} seconds; {remedy}"
        if done.returncode:
            return f"apt-get {words[0]} failed ({done.stderr.strip().splitlines()[-1:]}); {remedy}"
    return None


@pytest.fixture(scope="session")
def pages(demo_sweep: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One page of every kind that the package makes."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ["forecast", "airline", "--horizon", "6", "--network", "none", "--plot", "--out", "fan.csv"]
        patch.setattr(sys, "argv", ["stochflow", *words])
        with pytest.raises(SystemExit, match="0"):
            cli.main()
    return {
        "run": api.report(demo_sweep / "runs/sgfn-db-0.25-0", folder / "run.html"),
        "sweep": api.report(demo_sweep, folder / "sweep.html"),
        "fan": folder / "fan.html",
        "campaign": _campaign(folder / "lab").report(),
    }


def _campaign(folder: Path) -> Campaign:
    """A round with a failed well, and one that is pending."""
    campaign = Campaign.create(folder, length=6, noise=0.1, batch=12)
    designs = ["".join("ACGT"[(number >> 2 * place) % 4] for place in range(6)) for number in range(7, 4096, 128)]
    campaign.tell(pd.DataFrame({"sequence": designs, "score": [design.count("G") - 3.0 for design in designs]}))
    plate = campaign.ask()
    scores = [None, *range(11)]
    campaign.tell(plate[["id"]].assign(score=scores, observed=plate["order"]))
    campaign.ask()
    return campaign


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize("kind", ["run", "sweep", "fan", "campaign"])
def test_a_page_is_drawn_quiet_and_no_wider_than_its_screen(
    kind: str, width: int, scheme: str, browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages[kind], width, scheme)
    assert browser.wait_for_figures() == {"run": 8, "sweep": 9, "fan": 1, "campaign": 8}[kind]
    assert browser.overflow() <= 0
    assert browser.complaints() == []
    assert browser.requests() == [pages[kind].as_uri()]
    assert browser.screenshot(f"{kind}-{width}-{scheme}").stat().st_size > 10_000


@pytest.mark.parametrize("kind", ["run", "sweep", "campaign"])
def test_every_choice_of_every_list_shows_figures_that_fit(kind: str, browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages[kind], 390)
    seen: set[str] = set()
    for number in range(browser.ask("return document.querySelectorAll('select').length")):
        if not browser.ask("return !!document.querySelectorAll('select')[arguments[0]].offsetParent", number):
            continue
        for choice in range(browser.ask("return document.querySelectorAll('select')[arguments[0]].length", number)):
            browser.ask(
                "const list = document.querySelectorAll('select')[arguments[0]]; list.selectedIndex = arguments[1];"
                "list.dispatchEvent(new Event('change'))",
                number,
                choice,
            )
            browser.wait_for_figures()
            assert browser.overflow() <= 0
            seen |= set(
                browser.ask(
                    "return [...document.querySelectorAll('[data-figure]')].filter(e => e.offsetParent)"
                    ".map(e => e.dataset.figure)"
                )
            )
        browser.ask(
            "const list = document.querySelectorAll('select')[arguments[0]]; list.selectedIndex = 0;"
            "if (list.dataset.switch !== 'details') list.dispatchEvent(new Event('change'))",
            number,
        )
    assert browser.complaints() == []
    if kind != "sweep":
        assert len(seen) == browser.ask("return content.length")


@pytest.mark.parametrize("kind", ["run", "fan"])
def test_figures_follow_when_the_reader_turns_the_light_off(
    kind: str, browser: Browser, pages: dict[str, Path]
) -> None:
    colour = "getComputedStyle(document.querySelector('.xtick text')).fill"
    browser.open(pages[kind])
    assert browser.ask(f"return {colour}") == "rgb(29, 34, 39)"
    browser.prefer("dark")
    browser.wait_for(f"return {colour} === 'rgb(230, 233, 236)'")
    assert browser.ask("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    assert browser.complaints() == []


DESIGNS = "table:has(th[aria-sort])"  # the one that is sorted from the start


def cells(browser: Browser, column: int) -> list[str]:
    rows = f"document.querySelector('{DESIGNS}').tBodies[0].rows"
    script = f"return [...{rows}].map(r => r.children[arguments[0]].textContent)"
    found: list[str] = browser.ask(script, column)
    return found


def sorting(browser: Browser) -> list[str | None]:
    script = f"return [...document.querySelectorAll('{DESIGNS} th')].map(h => h.getAttribute('aria-sort'))"
    found: list[str | None] = browser.ask(script)
    return found


def test_the_designs_sort_by_mouse_and_by_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["run"])
    before = cells(browser, 0)
    assert sorting(browser) == [None, "descending", None, None, None]
    headers = browser.driver.find_elements(By.CSS_SELECTOR, f"{DESIGNS} th button")
    browser.ask("arguments[0].scrollIntoView({block: 'center'})", headers[3])
    headers[3].click()
    assert sorting(browser) == [None, None, None, "descending", None]
    values = [float(text) for text in cells(browser, 3)]
    assert values == sorted(values, reverse=True)
    assert cells(browser, 0) != before
    headers[3].send_keys(Keys.ENTER)
    assert sorting(browser) == [None, None, None, "ascending", None]
    assert [float(text) for text in cells(browser, 3)] == values[::-1]
    headers[0].send_keys(Keys.SPACE)
    assert sorting(browser) == ["ascending", None, None, None, None]
    assert cells(browser, 0) == sorted(before)


def test_hostile_text_in_a_run_stays_text(browser: Browser, poisoned_run: Path) -> None:
    page = api.report(poisoned_run)
    browser.open(page)
    assert browser.ask("return [typeof window.hacked, document.images.length]") == ["undefined", 0]
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    legend = browser.ask("return [...document.querySelectorAll('.legendtext')].map(e => e.textContent)")
    assert any("<img src=x" in text for text in legend)


def test_hostile_names_of_series_stay_text(browser: Browser, tmp_path: Path) -> None:
    name = "<img src=x onerror=window.hacked=1></script>"
    days = pd.date_range("2020-01-01", periods=60).strftime("%Y-%m-%d")
    pd.DataFrame({"unique_id": name, "ds": days, "y": range(60)}).to_csv(tmp_path / "data.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        words = ["forecast", "data.csv", "--network", "none", "--plot", "--out", "f.csv"]
        patch.setattr(sys, "argv", ["stochflow", *words])
        with pytest.raises(SystemExit, match="0"):
            cli.main()
    browser.open(tmp_path / "f.html")
    assert browser.ask("return [typeof window.hacked, document.images.length]") == ["undefined", 0]
    assert browser.ask("return document.querySelector('figcaption h3').textContent") == name
    assert browser.complaints() == []


def test_a_run_that_has_only_begun_is_a_quiet_page(browser: Browser, run: Path) -> None:
    for name in ("summary.json", "samples.csv", "metrics.jsonl"):
        (run / name).unlink()
    shutil.rmtree(run / "checkpoint")
    browser.open(api.report(run), 390)
    assert browser.complaints() == []
    assert browser.overflow() <= 0
    assert "There is no summary.json" in browser.ask("return document.querySelector('.notes').textContent")

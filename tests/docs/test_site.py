"""The site in a browser, opened as files: no errors, no other machine, enough contrast, nothing too wide, a search."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT

webdriver = pytest.importorskip("selenium.webdriver")
wait = pytest.importorskip("selenium.webdriver.support.wait")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(BROWSER is None or DRIVER is None, reason="needs chromium and chromedriver")

PAGES = ["index.html", "tutorials/gflownets-under-noise.html", "reference/cli.html", "reference/api/running.html"]
# of every visible text: contrast of its colour with what lies behind it; WCAG 2 AA asks for 4.5, or 3 if it is large
CONTRAST = """
const part = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
const light = (c) => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
const read = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3]));
const up = (e) => (e ? [e, ...up(e.parentElement)] : []);
const found = [];
for (const e of document.querySelectorAll("body *")) {
  if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
  if (!e.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
  if (e.closest("[hidden], .md-search__output")) continue;
  const box = e.getBoundingClientRect(), x = box.left + box.width / 2, y = box.top + box.height / 2;
  if (x < 0 || y < 0 || x > innerWidth || y > innerHeight || !up(document.elementFromPoint(x, y)).includes(e)) continue;
  const style = getComputedStyle(e), behind = up(e).map((p) => read(getComputedStyle(p).backgroundColor)).reverse();
  const ground = behind.reduce((below, c) => over(c, below), [255, 255, 255]);
  const ink = read(style.color);
  ink[3] *= up(e).reduce((product, p) => product * getComputedStyle(p).opacity, 1);
  const [a, b] = [light(over(ink, ground)), light(ground)];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(style.fontSize);
  if (ratio < (size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5))
    found.push(`${e.tagName}.${e.className} "${e.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
}
return [found, document.documentElement.scrollWidth - innerWidth];
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    yield driver
    driver.quit()


def open_page(browser: Any, path: Path, scheme: str, width: int) -> None:
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    wanted = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})
    browser.get(path.as_uri())
    browser.execute_script("localStorage.clear()")  # the scheme of the page before
    browser.get(path.as_uri())
    assert (
        browser.execute_script("return document.body.dataset.mdColorScheme")
        == {"light": "default", "dark": "slate"}[scheme]
    )


def requested(browser: Any) -> list[str]:
    messages = [json.loads(entry["message"])["message"]["params"] for entry in browser.get_log("performance")]
    return [message["request"]["url"] for message in messages if "request" in message]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_can_be_read_in_both_schemes(site: Path, browser: Any, scheme: str, width: int) -> None:
    for page in PAGES:
        open_page(browser, site / page, scheme, width)
        faint, too_wide = browser.execute_script(CONTRAST)
        assert (faint, too_wide <= 0) == ([], True), page
        assert [entry["message"] for entry in browser.get_log("browser")] == [], page
        assert [url for url in requested(browser) if not url.startswith(("file:", "data:"))] == [], page


def test_the_search_answers_without_a_server(site: Path, browser: Any) -> None:
    open_page(browser, site / "index.html", "light", 1280)
    browser.find_element("css selector", ".md-search__input").send_keys("log Z hypergrid")
    waiting = wait.WebDriverWait(browser, 20)
    found = waiting.until(lambda driver: driver.find_elements("css selector", ".md-search-result__item a"))
    assert any("hypergrid" in link.get_attribute("href") or "tasks" in link.get_attribute("href") for link in found)


def test_the_keyboard_reaches_the_content_and_the_switch_of_the_scheme(site: Path, browser: Any) -> None:
    open_page(browser, site / "index.html", "light", 1280)
    reached: set[str] = set()
    for _ in range(25):
        browser.switch_to.active_element.send_keys("\ue004")  # the tabulator
        element = browser.switch_to.active_element
        inside = browser.execute_script("return arguments[0].closest('article') !== null", element)
        reached |= {*(element.get_attribute("class") or "").split(), "in content" if inside else ""}
    assert {"md-skip", "md-search__input", "in content", "md-option"} <= reached

"""A real browser for tests of pages: Debian's Chromium without a window, which is installed when it is missing."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

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
        """Open a file and wait for its figures."""
        self.visit(page.resolve().as_uri(), width, scheme)
        self.wait_for_figures()

    def visit(self, address: str, width: int = 1280, scheme: str = "light") -> None:
        self.width = width
        self.driver.get("about:blank")  # an address that differs after its # alone would not be opened anew
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.prefer(scheme)
        self.driver.get(address)

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
        return [request["url"] for request in asked if not request["url"].startswith(("data:", "about:"))]

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

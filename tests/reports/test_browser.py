"""Pages in a real browser: drawn, quiet, at home on every screen, and without a word to the network."""

import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from stochflow import Campaign, api
from stochflow.cli import app as cli
from tests.browser import Browser, browser

__all__ = ["browser"]  # a fixture


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

"""Template of every page: content security policy, style for light and dark mode, and the script that draws."""

# `assemble` substitutes the names after a dollar sign; the policy in the head forbids every request. Colours of series
# are after Okabe and Ito, distinguishable with every kind of colour vision; lighter in dark mode.
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:">
<title>$title</title>
<style>
:root { color-scheme: light dark; --page: #ffffff; --card: #f5f7f9; --text: #1d2227; --quiet: #5b646d;
  --line: #d5dade; --grid: #e6eaed; --s1: #0072b2; --s2: #d55e00; --s3: #008562; --s4: #b3528b; --s5: #a87400;
  --s6: #3f8fc4; --s7: #6b5bb5; --heat0: #f5f7f9; --heat1: #6ba9d6; --heat2: #07518a; --cold: #2166ac; --hot: #d55e00;
  --median: #0b57a4; --band95: #dce9f6; --band80: #b7d2ec; --band50: #86b3de; --warn: #8a5300; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171a; --card: #1c2126; --text: #e6e9ec; --quiet: #9aa4ad; --line: #343b42; --grid: #272d33;
    --s1: #56b4e9; --s2: #f2894a; --s3: #2fc49a; --s4: #e29cc4; --s5: #e8bd4a; --s6: #a9d8f5; --s7: #b0a4ee;
    --heat0: #1c2126; --heat1: #24618f; --heat2: #8fd0ff; --cold: #4a9be0; --hot: #f2894a;
    --median: #8cc4ff; --band95: #1c2e40; --band80: #25486b; --band50: #2f6498; --warn: #f0b429; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1200px; padding: 24px 16px 32px; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.3; margin: 0 0 8px; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 40px 0 8px; padding-top: 16px; border-top: 1px solid var(--line);
  overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
p { color: var(--quiet); margin: 4px 0 12px; max-width: 75ch; overflow-wrap: anywhere; }
select { font: inherit; max-width: 100%; padding: 4px 8px; color: var(--text); background: var(--page);
  border: 1px solid var(--line); border-radius: 4px; }
code { display: block; white-space: pre-wrap; overflow-wrap: anywhere; background: var(--card); color: var(--text);
  border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; margin: 8px 0;
  font: 0.85rem/1.5 ui-monospace, monospace; }
[hidden] { display: none !important; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 175px), 1fr)); gap: 12px;
  margin: 16px 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; }
.tile b { display: block; font-size: 1.5rem; line-height: 1.3; font-variant-numeric: tabular-nums; font-weight: 600; }
.tile b small { display: block; font-size: 0.85rem; font-weight: 400; color: var(--quiet); }
.tile p { font-size: 0.85rem; line-height: 1.4; margin: 4px 0 0; }
.grid { display: grid; gap: 24px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); }
.grid.three { grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); }
figure { margin: 12px 0; min-width: 0; display: flex; flex-direction: column; justify-content: space-between; }
figcaption p { font-size: 0.875rem; line-height: 1.45; }
.plot { width: 100%; height: 380px; }
.three .plot { height: 300px; }
.fan .plot { height: min(70vh, 560px); min-height: 320px; }
.controls { display: flex; flex-wrap: wrap; gap: 8px 20px; margin: 8px 0; }
label { display: inline-flex; gap: 8px; align-items: center; max-width: 100%; flex-wrap: wrap; }
.notes { border-left: 4px solid var(--warn); background: var(--card); padding: 8px 14px; margin: 12px 0;
  border-radius: 0 8px 8px 0; overflow-wrap: anywhere; }
.notes ul { margin: 4px 0; padding-left: 20px; }
.scroll { max-height: 440px; overflow: auto; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 12px; border-bottom: 1px solid var(--grid); white-space: nowrap; }
td.text { white-space: normal; overflow-wrap: anywhere; }
th { position: sticky; top: 0; background: var(--card); padding: 0; }
th.text, td.text { text-align: left; }
td.mono { min-width: 9ch; font-family: ui-monospace, monospace; }
th button { font: inherit; font-weight: 600; color: inherit; background: none; border: 0; cursor: pointer;
  width: 100%; text-align: inherit; padding: 7px 12px; }
th button:focus-visible, select:focus-visible, .scroll:focus-visible { outline: 2px solid var(--s1);
  outline-offset: -2px; }
th button::after { content: " \\2195"; color: var(--quiet); }
th[aria-sort=ascending] button::after { content: " \\2191"; color: var(--text); }
th[aria-sort=descending] button::after { content: " \\2193"; color: var(--text); }
.logo { display: block; width: 100%; height: auto; margin: 8px 0; }
.logo line { stroke: var(--grid); }
.logo .tick { font: 12px system-ui, sans-serif; fill: var(--quiet); text-anchor: middle; }
.logo .letter { font: bold 100px Arial, Helvetica, "Liberation Sans", sans-serif; }
.n1 { fill: var(--s1); } .n2 { fill: var(--s2); } .n3 { fill: var(--s3); } .n4 { fill: var(--s4); }
.n5 { fill: var(--s5); } .n6 { fill: var(--s6); } .n7 { fill: var(--s7); }
details summary { cursor: pointer; margin: 8px 0; }
@media (max-width: 600px) {
  .plot { height: 320px; }
  .tiles { grid-template-columns: 1fr 1fr; gap: 8px; }
  .tile { padding: 10px; }
  table { font-size: 0.8rem; }
  td { padding: 5px 6px; }
  th button { padding: 7px 6px; }
  th:not([aria-sort]) button::after { content: none; }
}
</style>
</head>
<body>
$body
<script>$plotly</script>
<script type="application/json" id="data">$data</script>
<script>
const content = JSON.parse(document.getElementById("data").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)"), narrow = window.matchMedia("(max-width: 600px)");
// a colour is the name of a variable of the style, perhaps with an opacity: "--text" or "--text 0.5"
function ink(name) {
  const [variable, opacity] = name.split(" ");
  const colour = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
  if (!opacity) return colour;
  const parts = [1, 3, 5].map(function (start) { return parseInt(colour.slice(start, start + 2), 16); });
  return "rgba(" + parts.join(",") + "," + opacity + ")";
}
const inked = new Set(["color", "fillcolor", "colorscale"]);
function dressed(value, key) {
  if (typeof value === "string") return inked.has(key) && value.startsWith("--") ? ink(value) : value;
  if (Array.isArray(value)) return inked.has(key) ? value.map(function (v) { return dressed(v, key); }) : value;
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(function ([k, v]) { return [k, dressed(v, k)]; }));
}
// drawn in the colours of the moment; traces are dressed one by one because their numbers need no walk
function plot(element, figure) {
  const axis = { gridcolor: ink("--grid"), linecolor: ink("--line"), zeroline: false, automargin: true };
  const layout = Object.assign({ margin: { l: 8, r: 8, t: 8, b: 8 }, paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink("--text"), family: "system-ui, sans-serif",
    size: narrow.matches ? 11 : 12 } }, dressed(figure.layout));
  for (const name of ["xaxis", "yaxis"]) layout[name] = Object.assign({}, axis, layout[name]);
  Plotly.react(element, figure.traces.map(function (trace) { return dressed(trace); }), layout,
    { responsive: true, displaylogo: false, displayModeBar: false });
}
// only what is seen is drawn: a hidden chart has no size
function draw() {
  for (const element of document.querySelectorAll("[data-figure]")) {
    if (!element.offsetParent || element.dataset.drawn) continue;
    plot(element, content[element.dataset.figure]);
    element.dataset.drawn = "yes";
  }
}
// a part is shown when its choice is what all selects of its name say together
function choose(name) {
  const selects = [...document.querySelectorAll("select")].filter(function (s) { return s.dataset.switch === name; });
  const chosen = selects.map(function (select) { return select.value; }).join("-");
  for (const part of document.querySelectorAll("[data-part]"))
    if (part.dataset.part === name) part.hidden = part.dataset.choice !== chosen;
  draw();
}
for (const select of document.querySelectorAll("select[data-switch]")) {
  select.addEventListener("change", function () { choose(select.dataset.switch); });
  choose(select.dataset.switch);  // a browser may restore an earlier choice
}
function sortBy(header) {
  const row = header.parentElement, table = row.closest("table"), column = [...row.children].indexOf(header);
  const ascending = header.getAttribute("aria-sort") === "descending" ||
    (!header.hasAttribute("aria-sort") && header.classList.contains("text"));
  const value = function (line) {
    const cell = line.children[column], number = cell.dataset.value;
    return number === undefined ? cell.textContent : Number(number);
  };
  const lines = [...table.tBodies[0].rows].sort(function (one, other) {
    const a = value(one), b = value(other);
    return (a < b ? -1 : a > b ? 1 : 0) * (ascending ? 1 : -1);
  });
  for (const cell of row.children) cell.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  table.tBodies[0].append(...lines);
}
for (const button of document.querySelectorAll("th button"))
  button.addEventListener("click", function () { sortBy(button.parentElement); });
dark.addEventListener("change", function () {
  for (const element of document.querySelectorAll("[data-drawn]")) delete element.dataset.drawn;
  draw();
});
draw();
</script>
</body>
</html>
"""

"""Template of every page: content security policy, colours for light and dark mode, and the plotting script."""

# page.py substitutes the names after a dollar sign; the policy in the head forbids every request
SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:">
<title>$title</title>
<style>
:root { color-scheme: light dark; --page: #ffffff; --card: #f5f7f9; --text: #1d2227; --quiet: #5b646d;
  --line: #d5dade; --grid: #e6eaed; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171a; --card: #1c2126; --text: #e6e9ec; --quiet: #9aa4ad; --line: #343b42; --grid: #272d33; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1200px; padding: 16px; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; line-height: 1.3; margin: 0 0 8px; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 8px 0; overflow-wrap: anywhere; }
select { font: inherit; max-width: 100%; padding: 4px 8px; color: var(--text); background: var(--page);
  border: 1px solid var(--line); border-radius: 4px; }
p, footer { color: var(--quiet); }
footer { border-top: 1px solid var(--line); margin-top: 16px; padding-top: 8px; font-size: 0.85rem; }
code { display: block; white-space: pre-wrap; overflow-wrap: anywhere; color: var(--text); }
$style
</style>
</head>
<body>
$body
<script>$plotly</script>
<script type="application/json" id="data">$data</script>
<script>
const content = JSON.parse(document.getElementById("data").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
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
function plot(element, traces, layout) {
  const axis = { gridcolor: ink("--grid"), linecolor: ink("--line"), zeroline: false, automargin: true };
  const full = Object.assign({ margin: { l: 8, r: 8, t: 8, b: 8 }, paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink("--text"), family: "system-ui, sans-serif" } }, dressed(layout));
  for (const name of ["xaxis", "yaxis"]) full[name] = Object.assign({}, axis, full[name]);
  return Plotly.react(element, traces.map(function (trace) { return dressed(trace); }), full,
    { responsive: true, displaylogo: false, displayModeBar: false });
}
$script
</script>
</body>
</html>
"""

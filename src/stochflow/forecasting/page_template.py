"""The page around the fans: its style for light and dark, and the few lines of script that draw."""

# names after a dollar sign are filled in by page.py; the policy in the head forbids every request
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:">
<title>$title</title>
<style>
:root { color-scheme: light dark; --page: #ffffff; --text: #1d2227; --quiet: #5b646d; --line: #d5dade; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171a; --text: #e6e9ec; --quiet: #9aa4ad; --line: #343b42; }
}
body { margin: 0 auto; max-width: 1200px; padding: 16px; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 8px; overflow-wrap: anywhere; }
label { display: block; margin: 8px 0; }
h2 { font-size: 1.1rem; margin: 8px 0; overflow-wrap: anywhere; }
select { font: inherit; max-width: 100%; padding: 4px 8px; color: var(--text); background: var(--page);
  border: 1px solid var(--line); border-radius: 4px; }
#chart { width: 100%; height: min(70vh, 560px); min-height: 320px; }
p, footer { color: var(--quiet); }
footer { border-top: 1px solid var(--line); margin-top: 16px; padding-top: 8px; font-size: 0.85rem; }
code { display: block; white-space: pre-wrap; overflow-wrap: anywhere; color: var(--text); }
</style>
</head>
<body>
<h1>$title</h1>
<p>$note</p>
$selector
<div id="chart" role="img" aria-label="History and forecast with bands of 50, 80 and 95 per cent"></div>
<footer><code>$command</code>$versions</footer>
<script>$plotly</script>
<script type="application/json" id="fans">$fans</script>
<script>
const fans = JSON.parse(document.getElementById("fans").textContent);
const chart = document.getElementById("chart"), choice = document.getElementById("choice");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const colours = {
  light: { text: "#1d2227", line: "#d5dade", median: "#0b57a4",
    band95: "#dce9f6", band80: "#b7d2ec", band50: "#86b3de" },
  dark: { text: "#e6e9ec", line: "#343b42", median: "#8cc4ff",
    band95: "#1c2e40", band80: "#25486b", band50: "#2f6498" }
};
function draw() {
  const fan = fans[choice ? Number(choice.value) : 0], palette = dark.matches ? colours.dark : colours.light;
  const traces = fan.traces.map(function (trace) {
    const role = trace.meta, band = role.startsWith("band");
    const colour = role === "history" ? palette.text : palette[role];
    return Object.assign({}, trace, { fillcolor: colour, line: { color: colour, width: band ? 0 : 2 } });
  });
  // ids are text: plotly reads tags in labels, so the id stands in the selector or the heading only
  const axis = { gridcolor: palette.line, linecolor: palette.line, zeroline: false, automargin: true };
  Plotly.react(chart, traces, {
    margin: { l: 8, r: 8, t: 8, b: 8 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: palette.text, family: "system-ui, sans-serif" }, hovermode: "x",
    legend: { orientation: "h", y: -0.15, traceorder: "reversed" }, xaxis: axis, yaxis: Object.assign({}, axis)
  }, { responsive: true, displaylogo: false, displayModeBar: false });
  chart.setAttribute("aria-label", fan.id + ": history and forecast with bands of 50, 80 and 95 per cent");
}
if (choice) choice.addEventListener("change", draw);
dark.addEventListener("change", draw);
draw();
</script>
</body>
</html>
"""

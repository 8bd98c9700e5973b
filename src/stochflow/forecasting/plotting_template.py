"""What the page of fans adds to the common frame: the colours of its bands, and the few lines of script that draw."""

STYLE = """:root { --median: #0b57a4; --band95: #dce9f6; --band80: #b7d2ec; --band50: #86b3de; }
@media (prefers-color-scheme: dark) {
  :root { --median: #8cc4ff; --band95: #1c2e40; --band80: #25486b; --band50: #2f6498; }
}
label { display: block; margin: 8px 0; }
#chart { width: 100%; height: min(70vh, 560px); min-height: 320px; }"""

# names after a dollar sign are filled in by page.py
BODY = """<h1>$title</h1>
<p>$note</p>
$selector
<div id="chart" role="img" aria-label="History and forecast with bands of 50, 80 and 95 per cent"></div>
<footer><code>$command</code>$versions</footer>"""

SCRIPT = """const chart = document.getElementById("chart"), choice = document.getElementById("choice");
function draw() {
  const fan = content[choice ? Number(choice.value) : 0];
  const traces = fan.traces.map(function (trace) {
    const colour = trace.meta === "history" ? "--text" : "--" + trace.meta;
    const width = trace.meta.startsWith("band") ? 0 : 2;
    return Object.assign({}, trace, { fillcolor: colour, line: { color: colour, width: width } });
  });
  // ids are text: plotly reads tags in labels, so the id stands in the selector or the heading only
  plot(chart, traces, { hovermode: "x", legend: { orientation: "h", y: -0.15, traceorder: "reversed" } });
  chart.setAttribute("aria-label", fan.id + ": history and forecast with bands of 50, 80 and 95 per cent");
}
if (choice) choice.addEventListener("change", draw);
dark.addEventListener("change", draw);
draw();"""

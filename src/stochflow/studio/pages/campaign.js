import { chart } from "./chart.js";
import { doing, fill, find, get, h, link, number, plural, post, say, table, tile, upload, watch } from "./dom.js";

const path = new URLSearchParams(location.search).get("path") || "";
const LAYOUTS = { "plate.csv": "CSV, one row per well", "map.csv": "Plate map", "fasta.fasta": "FASTA",
  "idt.csv": "Order sheet (IDT)", "twist.csv": "Order sheet (Twist)" };
let shown = null, chosen = "", wasBusy = false;

const value = (well, colour) => colour === "auto" ? (well.state === "measured" ? well.score : well.predicted) : well[colour];

function inWords(well) {
  const score = well.state === "measured" ? `measured ${number(well.score)}` : well.state;
  return [`${well.well}: ${well.design}`, score, well.predicted === null ? null
    : `predicted ${number(well.predicted)} (${number(well.low)} to ${number(well.high)})`, well.why].filter(Boolean).join(" · ");
}

// wells as a grid that arrows walk through; colours are mixed from the palette by share of the scale
function grid(plate, shape, [low, high], colour) {
  const byPlace = new Map(plate.wells.filter((well) => well.row !== undefined).map((well) => [`${well.row},${well.column}`, well]));
  const cells = [h("span", {})];
  for (let column = 0; column < shape[1]; column++) cells.push(h("span", { class: "edge", "aria-hidden": "true" }, String(column + 1)));
  let first = true;
  for (let row = 0; row < shape[0]; row++) {
    cells.push(h("span", { class: "edge", "aria-hidden": "true" }, "ABCDEFGHIJKLMNOP"[row]));
    for (let column = 0; column < shape[1]; column++) {
      const well = byPlace.get(`${row},${column}`);
      if (!well) { cells.push(h("span", { class: "hole" })); continue; }
      const found = value(well, colour), words = inWords(well);
      const cell = h("button", { type: "button", class: `hole full ${well.state}`, "aria-label": words, title: words,
        tabindex: first ? 0 : -1, data: { row, column } });
      first = false;
      if (found !== null && !(colour === "auto" && well.state === "failed"))
        cell.style.setProperty("--share", `${Math.round(100 * (high > low ? (found - low) / (high - low) : 1))}%`);
      else cell.classList.add("unknown");
      cells.push(cell);
    }
  }
  const element = h("div", { class: `plate w${shape[1]}`, role: "group", "aria-label": `Plate ${plate.name}` }, cells);
  const tell = (event) => { if (event.target.ariaLabel && event.target !== element) find("well").textContent = event.target.ariaLabel; };
  for (const kind of ["pointerover", "focusin"]) element.addEventListener(kind, tell);
  element.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    const { row, column } = event.target.dataset;
    const next = element.querySelector(`[data-row="${Number(row) + step[0]}"][data-column="${Number(column) + step[1]}"]`);
    if (next) { event.preventDefault(); event.target.tabIndex = -1; next.tabIndex = 0; next.focus(); }
  });
  return h("figure", { class: "plate-figure" }, h("figcaption", {}, `Plate ${plate.name}`), element);
}

function plates(found) {
  find("plate-part").hidden = !found.plates.length;
  if (!found.plates.length) return;
  const colour = find("colour").value, scale = colour === "probability" ? [0, 1] : found.scale || [0, 1];
  fill(find("plates"), found.plates.map((plate) => grid(plate, found.shape, scale, colour)));
  fill(find("legend"), h("span", {}, number(scale[0])), h("span", { class: "scale", "aria-hidden": "true" }), h("span", {}, number(scale[1])),
    h("span", { class: "mark pending" }), "pending", h("span", { class: "mark failed" }), "failed");
  if (find("which").length !== found.asks) fill(find("which"), Array.from({ length: found.asks }, (_, place) =>
    h("option", { value: found.asks - place }, `${found.asks - place}${place ? "" : " (the latest)"}`)));
  find("which").value = found.ask;
  fill(find("layouts"), found.layouts.map((file) => link("/download", { path, file, ask: found.ask }, LAYOUTS[file], { class: "button", download: "" })));
  const rows = found.plates.flatMap((plate) => plate.wells).map((well) => [well.id, well.plate, well.well, well.design, well.state,
    well.score, well.predicted, well.low, well.high, well.probability, well.why]);
  fill(find("wells"), table(["id", "plate", "well", "order", "state", "score", "predicted", "from", "to", "made as written", "why"], rows));
}

function rounds(found) {
  find("rounds-part").hidden = !found.length;
  const drawn = found.map((each, place) => ({ ...each, place })).filter((each) => each.mean !== null);
  const series = ["best", "mean"].map((name) => ({ name, points: drawn.map((each) => [each.place, each[name]]) }));
  fill(find("progress"), drawn.length > 1 ? chart({ title: "Scores of each round", along: "", series, names: found.map((each) => each.name) }) : null);
  fill(find("rounds"), table(["round", "ordered", "measured", "failed", "pending", "mean", "best"],
    found.map((each) => [each.name, each.ordered, each.measured, each.failed, each.pending, each.mean, each.best])));
}

function draw(found) {
  const { status, settings, job } = shown = found, busy = job !== null && job.state === "running";
  document.title = `${found.name} · stochflow studio`;
  find("name").textContent = found.path;
  find("title").textContent = found.name;
  const size = status.num_feasible === null ? "" : ` ${number(status.num_feasible)} designs can be ordered.`;
  find("about").textContent = `Designs of ${settings.length} letters (${settings.alphabet}); goal: ${status.goal}; noise: ${status.noise}.${size}`;
  fill(find("tiles"), tile("Best score", number(status.best_score), status.best || "nothing measured yet"), tile("Measured", number(status.num_measured), "sequences with a score"),
    tile("Ordered", number(status.num_ordered), `in ${plural(status.num_asks, "round", "rounds")}`), tile("Pending", number(status.num_pending), "orders without a result"),
    tile("Failed", number(status.num_failed), "wells without a score"));
  if (!find("num").value) find("num").value = settings.batch;
  const button = find("ask").querySelector("button");
  button.disabled = busy;
  button.textContent = busy ? "Choosing …" : "Give me the next plate";
  if (busy) say("good", "The next plate is being chosen; you may close this page meanwhile.");
  else if (wasBusy) say(job.state === "done" ? "good" : "bad", job.state === "done" ? `Plate ${found.asks} is ready below.` : `No plate was chosen: ${job.error}.`);
  wasBusy = busy;
  const standing = found.tells.filter((each) => !each.undone);
  fill(find("tells"), standing.length ? [`Told last: ${standing.at(-1).file} `, h("button", { type: "button", class: "small", onclick: (event) =>
    doing(event.currentTarget, async () => { say("good", (await post("/api/undo", { path })).said); again(); }) }, "Take it back")] : "");
  plates(found);
  rounds(found.rounds);
  fill(find("actions"), link("/report", { path }, "Whole report", { class: "button", target: "_blank" }));
  return busy ? 700 : 5000;
}

const again = watch(() => get("/api/campaign", { path, ask: chosen }), draw);
find("colour").addEventListener("change", () => plates(shown));
find("which").addEventListener("change", () => { chosen = find("which").value === String(shown.asks) ? "" : find("which").value; again(); });
find("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  doing(event.submitter, async () => { await post("/api/ask", { path, num: Number(find("num").value) }); chosen = ""; wasBusy = true; again(); });
});
find("tell").addEventListener("submit", (event) => {
  event.preventDefault();
  doing(event.submitter, async () => {
    const sent = await upload(find("results").files[0]);
    if (sent.problem) throw new Error(sent.problem);
    const told = await post("/api/tell", { path, upload: sent.upload });
    find("tell").reset();
    say("good", told.said);
    again();
  });
});

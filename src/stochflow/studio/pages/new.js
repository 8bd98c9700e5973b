import { doing, fill, find, get, h, number, post, say, table, upload } from "./dom.js";

const form = find("form"), field = (name) => form.elements.namedItem(name);
let sent = null, channel = null, named = false;

const what = () => form.querySelector("input[name=what]:checked").value;

// show what matters for what was chosen, and nothing else
function follow() {
  const kind = what(), source = kind === "run" ? field("source").value : "table";
  for (const part of form.querySelectorAll("[data-for]")) part.hidden = part.dataset.for !== kind;
  for (const part of form.querySelectorAll("[data-source]")) part.hidden = part.dataset.source !== source;
  find("columns").hidden = kind !== "run" || !sent || !sent.table;
  find("target").hidden = field("goal").value !== "target";
  const noise = field("kind").selectedOptions[0];
  find("amount").hidden = !noise.dataset.number;
  find("amount").querySelector("span").textContent = noise.dataset.words || "";
  find("channel").hidden = noise.value !== "file";
  if (!named) field("name").value = !sent ? (kind === "run" && source === "task" ? field("task").value.replace(/[^\w.]+/g, "-") : "") : sent.name.replace(/\.\w+$/, "");
  location.hash = kind;
}

function describe(found) {
  if (!found.table) return fill(find("table"), h("p", { class: "notice bad" }, `${found.problem}.`));
  const { rows, columns, first, sequence, score, alphabet, shortest, longest } = found.table;
  const letters = shortest === longest ? `${longest} letters` : `${shortest} to ${longest} letters`;
  fill(find("table"), h("p", { class: "notice good" }, `${found.name}: ${number(rows)} rows${alphabet ? `, sequences of ${letters} (${alphabet})` : ""}.`),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "The first rows" }, table(columns, first)));
  for (const [name, chosen] of [["sequence_column", sequence], ["score_column", score]]) {
    fill(field(name), columns.map((column) => h("option", {}, column)));
    if (chosen) field(name).value = chosen;
  }
  if (alphabet) { field("alphabet").value = alphabet; field("length").value = longest; }
}

async function take(file) {
  say("", "");
  sent = null;
  fill(find("table"), h("p", { class: "quiet" }, `Reading ${file.name} …`));
  try { sent = await upload(file); } catch (error) { return fill(find("table"), h("p", { class: "notice bad" }, error.message)); }
  describe(sent);
  follow();
}

const optional = (name) => field(name).value === "" ? null : Number(field(name).value);

function noise() {
  const kind = field("kind").value, amount = field("noise").value;
  return kind === "none" || kind === "file" ? "none" : kind === "slip" ? amount : amount === "" ? kind : `${kind}:${amount}`;
}

async function content() {
  const kind = field("kind").value;
  if (kind === "file" && !channel) throw new Error("Choose the file of the channel, or another kind of noise.");
  const rules = { forbid: field("forbid").value, fixed: field("fixed").value, symmetric: field("symmetric").checked,
    gc_low: optional("gc_low"), gc_high: optional("gc_high"), max_homopolymer: optional("max_homopolymer") };
  return { name: field("name").value, noise: noise(), channel: kind === "file" ? channel.upload : "", rules, seed: Number(field("seed").value) };
}

async function start() {
  const common = await content(), kind = what();
  if (sent && !sent.table && (kind === "campaign" || field("source").value === "table")) throw new Error("The table cannot be read; choose another file.");
  if (kind === "campaign") {
    const goal = field("goal").value === "target" ? `target:${field("target").value}` : field("goal").value;
    const made = await post("/api/campaigns", { ...common, upload: sent ? sent.upload : "", goal, alphabet: field("alphabet").value,
      length: Number(field("length").value), batch: Number(field("batch").value) });
    location.assign(`/campaign?${new URLSearchParams({ path: made.path })}`);
    return;
  }
  const source = field("source").value;
  if (source === "table" && !sent) throw new Error("Choose a table first.");
  const oracle = source === "oracle";
  const begun = await post("/api/runs", { ...common, source, upload: sent && source === "table" ? sent.upload : "", task: field("task").value,
    oracle: oracle ? field("oracle").value : "", length: oracle ? Number(field("oracle_length").value) : null, alphabet: field("oracle_alphabet").value,
    sequence_column: field("sequence_column").value || "sequence", score_column: field("score_column").value || "score",
    method: field("method").value, budget: Number(field("budget").value), unit: field("unit").value });
  location.assign(`/run?${new URLSearchParams({ path: begun.path })}`);
}

form.addEventListener("change", (event) => {
  if (event.target.name === "kind") field("noise").value = event.target.selectedOptions[0].dataset.number || "";
  follow();
});
field("name").addEventListener("input", () => { named = field("name").value !== ""; });
find("file").addEventListener("change", (event) => { if (event.target.files[0]) take(event.target.files[0]); });
find("channel-file").addEventListener("change", async (event) => {
  try { channel = await upload(event.target.files[0]); } catch (error) { say("bad", error.message); }
});
for (const kind of ["dragover", "drop"]) find("drop").addEventListener(kind, (event) => {
  event.preventDefault();
  if (kind === "drop" && event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
});
form.addEventListener("submit", (event) => { event.preventDefault(); doing(event.submitter, start); });
if (location.hash === "#run") form.querySelector("input[value=run]").checked = true;
get("/api/overview").then(({ oracles }) => {
  const choice = form.querySelector("option[value=oracle]");
  choice.hidden = choice.disabled = !oracles.length;
  fill(field("oracle"), oracles.map((name) => h("option", {}, name)));
}).catch((error) => say("bad", error.message));
follow();

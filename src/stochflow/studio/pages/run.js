import { chart } from "./chart.js";
import { doing, fill, find, get, h, link, number, post, say, table, tile, time, watch } from "./dom.js";

const path = new URLSearchParams(location.search).get("path") || "";
const WORDS = { training: "training", finished: "finished", interrupted: "stopped", unreadable: "cannot be read",
  absent: "starting" };
let again = () => {};

const act = (text, address, kind = "") => h("button", { type: "button", class: kind, onclick: (event) =>
  doing(event.currentTarget, async () => { await post(address, { path }); say("", ""); again(); }) }, text);

function progress(run) {
  const open = run.state === "training" || run.state === "interrupted";
  find("progress").hidden = !open;
  if (!open) return;
  const [bar, words] = [find("progress").querySelector(".bar div"), find("progress").querySelector("p")];
  bar.style.width = `${100 * run.share}%`;
  words.textContent = [`${Math.round(100 * run.share)} % of the budget`, `${number(run.trajectories)} trajectories`,
    `${time(run.seconds)} of training`, run.state === "training" && run.left !== null && run.share ? `about ${time(run.left)} left` : ""].filter(Boolean).join(" · ");
}

function notice(run, job) {
  if (run.state === "absent" && job && job.state !== "running") return say("bad", `It did not begin: ${job.error}.`);
  if (run.state === "absent") return say(job ? "good" : "bad", job ? "It is starting; the first figures come in some seconds." : "There is no such run in this folder.");
  if (run.problem) return say("bad", run.problem);
  if (run.state === "interrupted" && job && job.state === "killed") return say("bad", `It was not finished: ${job.error}. Go on from the last checkpoint.`);
  if (run.state === "interrupted" && job && job.state === "failed") return say("bad", `It was not finished: ${job.error}.`);
  if (run.state === "interrupted") return say("good", "It was stopped before its budget was spent; everything so far is kept.");
  say("", "");
}

function tiles({ figures, doctor }) {
  const rows = [
    ["mean_score", "Expected score", figures.attainable_score === undefined ? "Mean score of what is drawn." : `of ${number(figures.attainable_score)} that is possible under this noise`],
    ["top100_mean", "Best 100", "Mean score of the 100 best designs."],
    ["num_modes", "Different peaks", "Good designs that differ from each other in several letters."],
    ["regret", "Regret", "nats from the best sampler that this noise permits; 0 is perfect"],
    ["j", "J", "nats, estimated from draws; higher is better"],
  ].filter(([name]) => figures[name] !== undefined && !(name === "j" && figures.regret !== undefined));
  fill(find("tiles"), rows.length ? rows.map(([name, title, words]) => tile(title, number(figures[name]), words))
    : h("p", { class: "quiet" }, "Nothing was evaluated yet."));
  fill(find("doctor"), h("p", { class: `notice ${doctor.healthy ? "good" : "bad"}` }, doctor.verdict),
    doctor.findings.map((found) => h("div", { class: `finding ${found.severity}` }, h("h3", {}, found.seen),
      h("p", {}, `It means: ${found.means}.`), h("p", {}, `To do: ${found.remedy}.`))));
}

function designs({ columns, rows, of }, state) {
  find("designs-part").hidden = !rows.length && state !== "finished";
  if (!rows.length) return fill(find("designs"), h("p", { class: "quiet" }, "No designs were drawn."));
  find("designs-words").textContent = `The ${rows.length} best of ${number(of)} different designs, best first.`;
  fill(find("designs"), table(["", ...columns], rows.map((row, place) => [place + 1, ...row])));
  const copy = h("button", { type: "button", onclick: async () => {
    await navigator.clipboard.writeText(rows.map((row) => row[0]).join("\n"));
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = `Copy the best ${rows.length}`; }, 2000);
  } }, `Copy the best ${rows.length}`);
  fill(find("design-actions"), copy, ["samples.csv", "samples.fasta"].map((file) =>
    link("/download", { path, file }, `Download ${file}`, { class: "button", download: "" })));
}

again = watch(() => get("/api/run", { path }), (run) => {
  document.title = `${run.name} · stochflow studio`;
  find("name").textContent = run.path;
  find("title").textContent = run.name;
  const working = run.job && run.job.state === "running", state = run.state;
  const lost = state === "absent" && !working;
  find("state").textContent = lost ? "did not begin" : WORDS[state];
  find("state").className = `badge ${lost ? "unreadable" : state}`;
  notice(run, run.job);
  find("log-part").hidden = !run.job || !run.job.log;
  find("log").textContent = run.job ? run.job.log : "";
  if (state === "absent" || state === "unreadable") {
    fill(find("actions"), lost ? h("a", { class: "button", href: "/new#run" }, "Try again") : null);
    for (const part of document.querySelectorAll("main > section")) part.hidden = true;
    return 700;
  }
  for (const part of document.querySelectorAll("main > section")) part.hidden = false;
  progress(run);
  fill(find("actions"), working && state === "training" ? act("Stop and keep what there is", "/api/stop") : null,
    state === "interrupted" && !working ? act("Go on", "/api/continue", "primary") : null,
    link("/report", { path }, "Whole report", { class: "button", target: "_blank" }),
    link("/download", { path, file: "config.yaml" }, "Settings", { class: "button", download: "" }));
  tiles(run);
  designs(run.designs, state);
  const along = { trajectories: "trajectories", step: "steps" };
  fill(find("curves"), run.curves.length ? run.curves.map((each) => chart({ title: each.title, along: along[each.along],
    series: [{ name: each.title, points: each.points }], line: each.line })) : h("p", { class: "quiet" }, "No step is done yet."));
  return state === "training" || working ? 1000 : 5000;
});

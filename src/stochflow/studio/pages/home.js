import { fill, find, get, h, link, number, plural, time, watch } from "./dom.js";

const WORDS = { training: "training", finished: "finished", interrupted: "stopped", unreadable: "cannot be read" };

function headline(figures) {
  const { mean_score: score, attainable_score: best, regret, j } = figures;
  if (score !== undefined && best !== undefined) return `expected score ${number(score)} of ${number(best)} possible`;
  if (score !== undefined) return `expected score ${number(score)}`;
  return regret !== undefined ? `regret ${number(regret)} nats` : j !== undefined ? `J ${number(j)} nats` : "";
}

function runCard(run) {
  const going = run.state === "training", percent = Math.round(run.share * 100);
  const left = going && run.left !== null ? `about ${time(run.left)} left` : "";
  return h("article", { class: "card" },
    h("div", { class: "title" }, h("h3", {}, link("/run", { path: run.path }, run.path)), h("span", { class: `badge ${run.state}` }, WORDS[run.state])),
    h("p", { class: "quiet" }, run.problem || run.title),
    run.state === "training" || run.state === "interrupted" ? h("progress", { max: 100, value: percent, "aria-label": `${percent} % of the budget` }) : null,
    h("p", {}, [run.state === "finished" ? "" : `${percent} %`, left, headline(run.figures)].filter(Boolean).join(" · ")));
}

function campaignCard({ path, status, problem }, busy) {
  const next = status === null ? "" : status.num_pending ? `${plural(status.num_pending, "design waits", "designs wait")} for results`
    : status.num_measured ? "ready for the next plate" : "nothing is known yet";
  const best = status && status.best_score !== null ? `best ${number(status.best_score)} (${status.best})` : "";
  return h("article", { class: "card" },
    h("div", { class: "title" }, h("h3", {}, link("/campaign", { path }, path)),
      h("span", { class: `badge ${busy ? "training" : ""}` }, busy ? "choosing a plate" : status ? plural(status.num_asks, "round", "rounds") : "cannot be read")),
    h("p", { class: "quiet" }, problem || next), best ? h("p", { class: "break" }, best) : null);
}

const empty = (what, words) => h("p", { class: "quiet" }, `No ${what} yet. `, h("a", { href: `/new#${words}` }, "Begin one."));

watch(() => get("/api/overview"), (found) => {
  find("folder").textContent = found.folder;
  fill(find("errors"), found.lost.map((job) => h("p", { class: `notice ${job.state === "running" ? "good" : "bad"}` },
    link(job.kind === "train" ? "/run" : "/campaign", { path: job.target }, job.target),
    job.state === "running" ? " is starting." : ` did not begin: ${job.error}.`)).slice(0, 3));
  fill(find("campaigns"), found.campaigns.length ? found.campaigns.map((each) => campaignCard(each, found.busy.includes(each.path))) : empty("campaign", "campaign"));
  fill(find("runs"), found.runs.length ? found.runs.map(runCard) : empty("run", "run"));
  return found.busy.length || found.runs.some((run) => run.state === "training") ? 1000 : 5000;
});

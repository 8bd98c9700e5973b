// Elements, requests and watching, for every page. Text is always text: nothing here makes HTML of it.

export const find = (id) => document.getElementById(id);

// h("a", { href: "/" }, "text", another): an element; `on…` are listeners, null children are left out
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const fill = (element, ...children) => element.replaceChildren(...children.flat().filter((child) => child));

async function answer(response) {
  if (!(response.headers.get("content-type") || "").includes("json")) throw new Error(await response.text());
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}

export const get = async (path, query = {}) => answer(await fetch(`${path}?${new URLSearchParams(query)}`));

export const post = async (path, content) => answer(await fetch(path, {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(content) }));

export const upload = async (file) => answer(await fetch(`/api/upload?${new URLSearchParams({ name: file.name })}`, {
  method: "POST", headers: { "content-type": "application/octet-stream" }, body: file }));

// ask again and again, and draw when the answer is another one; sooner while something is going on
export function watch(ask, draw) {
  let last = "", timer = 0, turn = 0;
  async function look() {
    clearTimeout(timer);
    const mine = ++turn, begun = performance.now();
    let wait = 5000;
    try {
      const found = await ask(), text = JSON.stringify(found);
      if (mine !== turn) return;
      find("offline").hidden = true;
      if (text !== last) { last = text; wait = draw(found) || wait; look.wait = wait; }
      wait = look.wait;
    } catch (error) {
      if (mine !== turn) return;
      if (error instanceof TypeError) find("offline").hidden = false;
      else say("bad", error.message);
    }
    timer = setTimeout(look, Math.max(wait * (document.hidden ? 5 : 1), 3 * (performance.now() - begun)));
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
  look();
  return () => { last = ""; look(); };
}

// one sentence for the reader; "" takes it away
export function say(kind, text) {
  fill(find("notice") || find("errors"), text ? h("p", { class: `notice ${kind}` }, text) : null);
}

// do something that the server may refuse, with its button out of reach meanwhile
export async function doing(button, work) {
  button.disabled = true;
  button.setAttribute("aria-busy", "true");
  try { await work(); } catch (error) {
    say("bad", error instanceof TypeError ? "The studio does not answer; start it again." : error.message);
  } finally { button.disabled = false; button.removeAttribute("aria-busy"); }
}

export const number = (value, digits = 3) => value === null || value === undefined ? "–"
  : Number.isInteger(value) && value ? value.toLocaleString("en") : String(Number(value.toPrecision(digits)) || 0);

export function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const all = Math.round(seconds), hours = Math.floor(all / 3600), minutes = Math.floor(all / 60) % 60;
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${all % 60} s` : `${all} s`;
}

export const plural = (count, one, many) => `${number(count)} ${count === 1 ? one : many}`;

export const tile = (title, value, words) => h("div", { class: "tile" }, h("h3", {}, title), h("b", {}, value),
  words ? h("p", {}, words) : null);

// rows of text (left) and numbers (right)
export const table = (titles, rows) => h("table", {}, h("thead", {}, h("tr", {},
  titles.map((title, place) => h("th", { scope: "col", class: rows.length && typeof rows[0][place] === "string" ? "text" : null }, title)))),
  h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => typeof cell === "string" ? h("td", { class: "text" }, cell)
    : h("td", {}, cell instanceof Node ? cell : number(cell, 4)))))));

export const link = (path, query, text, more = {}) => h("a", { href: `${path}?${new URLSearchParams(query)}`, ...more }, text);

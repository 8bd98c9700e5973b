// A chart of one measure as SVG: line, axes in words, a line across for what is best, and the value under the pointer.

import { h, number } from "./dom.js";

const LEFT = 56, RIGHT = 24, TOP = 18, BOTTOM = 44;

function s(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// round numbers that span a range
export function ticks(low, high, most = 5) {
  const raw = (high - low) / most || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw * 0.999);
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place++) found.push(place * step || 0);
  return found;
}

// one or several series [[x, y], …]; names of the places on the x axis may stand for numbers
export function chart({ title, series, along, line = null, names = null }) {
  const [WIDTH, HEIGHT] = window.innerWidth < 600 ? [360, 220] : [520, 260];
  const points = series.flatMap((each) => each.points), xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  if (line) ys.push(line.value);
  let [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  [x0, x1] = names ? [-0.5, names.length - 0.5] : [Math.min(0, x0), x1];
  if (x0 === x1) x1 = x0 + 1;
  const slack = (y1 - y0 || Math.abs(y1) || 1) * 0.06;
  y0 -= slack; y1 += slack;
  const x = (value) => LEFT + (value - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM);
  const drawing = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
  for (const value of ticks(y0, y1, 4)) drawing.append(
    s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
    s("text", { class: "tick end", x: LEFT - 8, y: y(value) + 4 }, number(value)));
  const places = names ? names.map((name, place) => [place, name]) : ticks(x0, x1, 4).map((value) => [value, number(value)]);
  const every = Math.ceil(places.length / 8);
  for (const [place, name] of places.filter((_, index) => index % every === 0)) drawing.append(
    s("text", { class: "tick middle", x: x(place), y: HEIGHT - BOTTOM + 18 }, name));
  drawing.append(s("text", { class: "tick middle", x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 8 }, along));
  if (line) drawing.append(s("line", { class: "best", x1: LEFT, x2: WIDTH - RIGHT, y1: y(line.value), y2: y(line.value) }),
    s("text", { class: "tick end best-words", x: WIDTH - RIGHT, y: y(line.value) - 5 }, line.words));
  series.forEach((each, place) => {
    const path = each.points.map((p) => `${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join(" ");
    drawing.append(s("polyline", { class: `series s${place + 1}`, points: path }));
    if (each.points.length < 25) for (const p of each.points) drawing.append(
      s("circle", { class: `dot s${place + 1}`, cx: x(p[0]), cy: y(p[1]), r: 3.5 }));
  });
  const mark = s("circle", { class: "mark", r: 5, visibility: "hidden" });
  drawing.append(mark);
  const last = points.at(-1), shown = h("p", { class: "value" });
  const told = (p) => {
    shown.textContent = `${names ? names[p[0]] : `at ${number(p[0])} ${along}`}: ${number(p[1], 4)}`;
  };
  told(last);
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect(), at = (event.clientX - box.left) * WIDTH / box.width;
    const above = (event.clientY - box.top) * HEIGHT / box.height;
    const near = points.reduce((one, other) => Math.hypot(x(other[0]) - at, (y(other[1]) - above) / 4)
      < Math.hypot(x(one[0]) - at, (y(one[1]) - above) / 4) ? other : one);
    for (const [name, value] of [["cx", x(near[0])], ["cy", y(near[1])], ["visibility", "visible"]]) mark.setAttribute(name, value);
    told(near);
  });
  drawing.addEventListener("pointerleave", () => { mark.setAttribute("visibility", "hidden"); told(last); });
  const key = series.length > 1 ? h("p", { class: "key" }, series.map((each, place) => h("span", { class: `k${place + 1}` }, each.name))) : null;
  return h("figure", {}, h("figcaption", {}, title), key, drawing, shown);
}

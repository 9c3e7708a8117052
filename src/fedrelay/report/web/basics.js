// Elements, numbers as text, colours and scales. Text only ever goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const NONE = "–";

const element = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const shape = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

const label = (text, x, y, more = {}) => shape("text", { class: "soft", x, y, ...more }, text);

// Follows a reference into the document; any other value is returned as it is.
function resolve(doc, value) {
  if (value === null || typeof value !== "object" || value.ref === undefined) return value;
  return value.ref.split("/").reduce((found, step) => found[step], doc);
}

const known = (number) => number !== null && number !== undefined;
const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

const signed = (text) => (Number(text) > 0 ? `+${text}` : Number(text) ? text : text.replace("-", ""));

const FORMATS = {
  percent: (share, digits = 1) => `${(100 * share).toFixed(digits)} %`,
  number: (value) => String(Number(value.toPrecision(3))),
  points: (value, digits = 1) => signed((100 * value).toFixed(digits)),
  change: (value) => `${value > 0 ? "+" : ""}${Number(value.toPrecision(3))}`,
  count(number) {
    const digits = Number.isInteger(number) || Math.abs(number) >= 100 ? 0 : 1;
    return number.toLocaleString("en-GB", { maximumFractionDigits: digits });
  },
  bytes(number) {
    const units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let power = 0;
    for (; power < units.length - 1 && number >= 999.5; power += 1) number /= 1000;
    return `${power && number < 99.95 ? trimmed(number.toFixed(1)) : number.toFixed(0)} ${units[power]}`;
  },
  seconds(number) {
    if (number > 0 && number < 1) return `${Number((1000 * number).toPrecision(3))} ms`;
    if (number < 59.95) return `${trimmed(number.toFixed(1))} s`;
    const whole = Math.round(number);
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
    const two = (value) => String(value).padStart(2, "0");
    return `${hours ? `${hours}:${two(minutes)}` : minutes}:${two(whole % 60)}`;
  },
};
const format = (value, name, ...more) => (known(value) ? FORMATS[name || "number"](value, ...more) : NONE);
const count = (number) => format(number, "count");
const percent = (share, digits = 1) => format(share, "percent", digits);
const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const sum = (numbers) => numbers.reduce((total, each) => total + (each || 0), 0);

const colour = (role) => (role.startsWith("#") ? role : `var(--${role})`);
const rgb = (name) => {
  const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  return [1, 3, 5].map((place) => parseInt(value.slice(place, place + 2), 16));
};

// From almost the colour of the card to the full shade.
function shade(share, role = "cell") {
  const [card, full] = [rgb("card"), rgb(role)];
  const strength = 0.06 + 0.94 * share;
  return `rgb(${card.map((each, place) => Math.round(each + (full[place] - each) * strength)).join(",")})`;
}

// From worse to better: one colour below the middle, another above it.
const diverging = (share) => shade(Math.abs(2 * share - 1), share < 0.5 ? "warn" : "cell");

// Black or white, whichever contrasts more.
function readableOn(text) {
  const [red, green, blue] = text
    .match(/\d+/g)
    .map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

// Maps numbers to pixels.
function makeScale([low, high], [from, to], log = false) {
  if (high === low) high = low + (Math.abs(low) || 1);
  const map = log ? Math.log10 : (value) => value;
  const [start, end] = [map(low), map(high)];
  const scale = (value) => from + ((map(value) - start) / (end - start)) * (to - from);
  scale.invert = (pixel) => {
    const value = start + ((pixel - from) / (to - from)) * (end - start);
    return log ? 10 ** value : value;
  };
  scale.ticks = (about) => (log ? logTicks(low, high) : evenTicks(low, high, about));
  return scale;
}

function evenTicks(low, high, about) {
  const rough = (high - low) / Math.max(1, about);
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * magnitude).find((each) => each >= rough * 0.999);
  const found = [];
  for (let each = Math.ceil(low / step - 1e-9); each * step <= high + step * 1e-9; each += 1)
    found.push(Number((each * step).toPrecision(12)));
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1)
    for (const factor of [1, 2, 5]) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) found.push({ value: Number(value.toPrecision(6)), factor });
    }
  return (found.length > 7 ? found.filter(({ factor }) => factor === 1) : found).map(({ value }) => value);
}

const tip = document.querySelector(".tip");

function showTip(event, title, rows) {
  const line = ([name, value, role]) =>
    element(
      "div",
      {},
      element("span", {}, role ? element("i", { class: "dot", style: `background:${colour(role)}` }) : null, name),
      element("span", {}, value),
    );
  tip.replaceChildren(element("b", {}, title), ...rows.map(line));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - 16 - box.width : event.clientX + 16;
  tip.style.left = `${Math.max(6, left)}px`;
  tip.style.top = `${Math.max(6, Math.min(innerHeight - box.height - 6, event.clientY + 14))}px`;
}

const hideTip = () => {
  tip.hidden = true;
};
addEventListener("scroll", hideTip, { passive: true });

function withTip(node, title, rows) {
  node.addEventListener("pointermove", (event) => showTip(event, title, rows()));
  node.addEventListener("pointerleave", hideTip);
  return node;
}

// Counts with their colours; neighbours of the same colour are added up, and nothing is left out but zeros.
function byColour(counts, parts) {
  const found = [];
  counts.forEach((each, index) => {
    if (!each) return;
    const role = parts[index].colour;
    if (found.at(-1)?.[0] === role) found.at(-1)[1] += each;
    else found.push([role, each]);
  });
  return found;
}

// The parts of a whole, largest first, as rows of a tooltip.
function partRows(counts, parts) {
  if (!counts) return [["classes", "not known"]];
  const total = sum(counts);
  const ranked = counts
    .map((each, index) => [each, parts[index]])
    .filter(([each]) => each)
    .sort((one, other) => other[0] - one[0]);
  return [
    ["samples", count(total)],
    ...ranked.slice(0, 6).map(([each, part]) => [part.name, `${count(each)} (${percent(each / total, 0)})`, part.colour]),
    ...(ranked.length > 6 ? [["other classes", count(ranked.length - 6)]] : []),
  ];
}

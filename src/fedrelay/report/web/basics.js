// Elements, numbers as people read them, scales and ticks. Text only ever goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const NONE = "–";
const METHOD_DASHES = ["", "7 3", "2 3", "8 3 2 3"];
const FEW_CLASSES = 10;
const VIRIDIS = [
  [68, 1, 84],
  [72, 40, 120],
  [62, 74, 137],
  [49, 104, 142],
  [38, 130, 142],
  [31, 158, 137],
  [53, 183, 121],
  [109, 205, 89],
  [180, 222, 44],
  [253, 231, 37],
];

function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function shape(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function headings(names) {
  return element(
    "thead",
    {},
    element(
      "tr",
      {},
      names.map((name) => element("th", { scope: "col" }, name)),
    ),
  );
}

const rowHead = (...children) => element("th", { scope: "row" }, ...children);

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const percent = (share, digits = 1) =>
  share === null || share === undefined ? NONE : `${(100 * share).toFixed(digits)} %`;

function count(number) {
  if (number === null || number === undefined) return NONE;
  const digits = Number.isInteger(number) || Math.abs(number) >= 100 ? 0 : 1;
  return number.toLocaleString("en-GB", { maximumFractionDigits: digits });
}

function bytes(number) {
  if (number === null || number === undefined) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let power = 0;
  while (power < units.length - 1 && number >= 999.5) {
    number /= 1000;
    power += 1;
  }
  return `${power && number < 99.95 ? trimmed(number.toFixed(1)) : number.toFixed(0)} ${units[power]}`;
}

function seconds(number) {
  if (number === null || number === undefined) return NONE;
  if (number > 0 && number < 0.1) return `${Number((1000 * number).toPrecision(2))} ms`;
  if (number < 60) return `${trimmed(number.toFixed(number < 10 ? 2 : 1))} s`;
  if (number < 3600) return `${trimmed((number / 60).toFixed(1))} min`;
  return `${trimmed((number / 3600).toFixed(1))} h`;
}

const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
const clipped = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const methodColour = (index) => `var(--m${index % 7})`;
const methodDash = (index) => METHOD_DASHES[Math.floor(index / 7) % METHOD_DASHES.length];

function classColour(index, classes) {
  if (classes <= FEW_CLASSES) return `var(--c${index})`;
  const place = (index / Math.max(1, classes - 1)) * (VIRIDIS.length - 1);
  const below = Math.min(VIRIDIS.length - 2, Math.floor(place));
  const mixed = VIRIDIS[below].map((value, each) =>
    Math.round(value + (VIRIDIS[below + 1][each] - value) * (place - below)),
  );
  return `rgb(${mixed.join(",")})`;
}

const colourNamed = (name) => {
  const value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((place) => parseInt(value.slice(place, place + 2), 16));
};

// From almost the card's own colour to the full shade.
function shade(value) {
  const [card, full] = [colourNamed("--card"), colourNamed("--cell")];
  const strength = 0.06 + 0.94 * value;
  return `rgb(${card.map((each, place) => Math.round(each + (full[place] - each) * strength)).join(",")})`;
}

// Black or white, whichever stands out more; one of them always does by 4.5 to 1.
function readableOn(colour) {
  const [red, green, blue] = colour
    .match(/\d+/g)
    .map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

// A scale maps numbers to pixels; logarithmic ones leave out what is not above 0.
function scale([low, high], [from, to], logarithmic = false) {
  if (high === low) high = low + (Math.abs(low) || 1);
  const way = logarithmic ? Math.log10 : (value) => value;
  const [start, end] = [way(low), way(high)];
  const place = (value) => from + ((way(value) - start) / (end - start)) * (to - from);
  place.back = (pixel) => {
    const value = start + ((pixel - from) / (to - from)) * (end - start);
    return logarithmic ? 10 ** value : value;
  };
  place.ticks = (about) => (logarithmic ? powers(low, high) : steps(low, high, about));
  return place;
}

function steps(low, high, about) {
  const rough = (high - low) / Math.max(1, about);
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * magnitude).find((each) => each >= rough * 0.999);
  const found = [];
  for (let each = Math.ceil(low / step - 1e-9); each * step <= high + step * 1e-9; each += 1)
    found.push(Number((each * step).toPrecision(12)));
  return found;
}

function powers(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const factor of [1, 2, 5]) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) found.push(Number(value.toPrecision(6)));
    }
  }
  return found.length > 7
    ? found.filter((value) => /^1(e|0*$)/.test(String(value)) || /^0\.0*1$/.test(String(value)))
    : found;
}

const ended = (run) => run.status === "diverged" || run.status === "fruitless";

// Why there is nothing to see of runs that ended badly.
const failures = ({ methods }) =>
  methods
    .flatMap((method) => method.runs.map((run) => ({ method, run })))
    .filter(({ run }) => ended(run))
    .map(({ method, run }) => `${method.name}, seed ${run.seed}: ${run.status}${run.why ? `, ${run.why}` : ""}.`)
    .join(" ");

// Methods of which something is known and no seed failed: a mean over those that came through would flatter.
const sound = ({ methods }) =>
  methods.filter(
    (method) =>
      method.method !== "centralized" && method.standing.accuracy_last.mean !== null && !method.runs.some(ended),
  );

const best = (doc) =>
  sound(doc).reduce(
    (found, method) =>
      !found || method.standing.accuracy_last.mean > found.standing.accuracy_last.mean ? method : found,
    null,
  );

const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// Sums of numbers that go by the same word.
function summed(pairs) {
  const sums = new Map();
  for (const [word, number] of pairs) sums.set(word, (sums.get(word) || 0) + number);
  return sums;
}

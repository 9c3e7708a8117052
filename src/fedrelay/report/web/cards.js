// Cards: controls that choose a figure, its legend and tables, and the buttons for PNG and CSV.

function segments({ label: name, options }, value, choose) {
  const buttons = options.map(([key, text]) =>
    element(
      "button",
      { type: "button", "data-value": key, "aria-pressed": String(key === value), onclick: () => choose(key) },
      text,
    ),
  );
  return element("span", { class: "segments", role: "group", "aria-label": name }, buttons);
}

function dropdown({ label: name, options }, value, choose) {
  const items = options.map(([key, text]) => element("option", { value: key, selected: key === value }, text));
  const select = element("select", { "aria-label": name, onchange: () => choose(select.value) }, items);
  return element("label", { hidden: options.length < 2 }, name, select);
}

function slider({ label: name, options }, value, choose) {
  const place = Math.max(0, options.findIndex(([key]) => key === value));
  const said = element("output", {}, options[place]?.[1] || "");
  const input = element("input", {
    type: "range", min: 0, max: options.length - 1, value: place, "aria-label": name, "aria-valuetext": said.textContent,
    oninput: () => choose(options[Number(input.value)][0]),
  });
  return element("div", { class: "slider" }, input, said);
}

const CONTROLS = { segments, select: dropdown, slider };

class Card {
  constructor(page, name) {
    this.page = page;
    this.name = name;
    this.chosen = {};
    this.toggles = new Set();
    this.open = new Set();
    this.baseline = null;
    this.controls = element("div", { class: "controls" });
    this.plot = element("div", { class: "plot", "data-figure": name });
    this.below = element("div", {});
    const button = (kind, title, act) =>
      element("button", { type: "button", "data-export": kind, title, onclick: act }, kind.toUpperCase());
    this.tools = element(
      "div",
      { class: "tools" },
      button("png", "Save this figure as an image", async () => save(`${name}.png`, await image(this.node))),
      button("csv", "Save these numbers as a table", () => save(`${name}.csv`, new Blob([csv(this.rows())], { type: "text/csv" }))),
    );
    this.node = element("div", { class: "card" }, this.controls, this.plot, this.below, this.tools);
  }

  get width() {
    return Math.max(280, Math.round(this.plot.clientWidth || this.node.parentElement?.clientWidth || 900));
  }

  // Shows the card of a new document, or the same card after a choice.
  update(value = this.value) {
    this.value = value;
    const { figures, table, details = [], warning, empty } = value;
    const figure = figures[this.key()];
    const filled = figure || table || details.length;
    this.node.hidden = !filled && !empty;
    this.drawControls();
    const drawn = figure ? this.draw(figure) : null;
    const nothing = this.page.hidden.size ? "All methods are hidden; click one to show it." : "There is nothing to draw for this choice.";
    const blank = figure ? (!figure.marks.length && figure.note) || nothing : empty;
    const missing = drawn || table || !blank ? "" : element("p", { class: "empty" }, blank);
    this.plot.replaceChildren(...[drawn || missing, table ? this.table(table, value.name) : ""].filter(Boolean));
    this.below.replaceChildren(
      ...(figure && drawn ? this.belowFigure(figure) : value.legend && figure ? [this.legend()] : []),
      ...(warning ? [element("p", { class: "note loss" }, warning)] : []),
      ...details.map((each) => this.details(each)),
    );
    this.tools.hidden = !(figure || table) || !this.page.doc.tables;
    this.tools.firstChild.hidden = !this.plot.querySelector("svg[viewBox]");
  }

  draw(figure) {
    const { doc, hidden } = this.page;
    return drawFigure(figure, { width: this.width, doc, hidden, toggles: this.toggles, ratioTo: this.baseline });
  }

  rows() {
    return blocksToRows(this.page.doc.tables[this.name], this.page.doc);
  }

  // The key of the chosen figure; a choice that does not exist becomes the first that does.
  key() {
    const keys = Object.keys(this.value.figures);
    const parts = [];
    for (const { name, options } of this.value.choices || []) {
      const fits = (option) => keys.some((key) => `${key}/`.startsWith(`${[...parts, option].join("/")}/`));
      const known = options.map(([key]) => key).filter(fits);
      if (known.length && !known.includes(this.chosen[name])) this.chosen[name] = known[0];
      parts.push(this.chosen[name]); // without figures for a moment, a choice stays
    }
    return parts.join("/");
  }

  drawControls() {
    const { choices = [], toggles = [], compare = [], figures } = this.value;
    const keys = Object.keys(figures);
    const focused = this.controls.contains(document.activeElement) ? document.activeElement : null;
    const place = focused ? [...this.controls.querySelectorAll("button, select, input")].indexOf(focused) : -1;
    const chosen = [];
    const nodes = choices.map((choice) => {
      const prefix = chosen.length ? `${chosen.join("/")}/` : "";
      const options = choice.options.filter(([key]) => keys.some((each) => `${each}/`.startsWith(`${prefix}${key}/`)));
      chosen.push(this.chosen[choice.name]);
      const choose = (key) => {
        this.chosen[choice.name] = key;
        this.update();
      };
      return CONTROLS[choice.style]({ ...choice, options }, this.chosen[choice.name], choose);
    });
    const buttons = toggles.map(([key, text]) =>
      element(
        "button",
        {
          type: "button", class: "plain", "data-toggle": key, "aria-pressed": String(this.toggles.has(key)),
          onclick: () => {
            if (!this.toggles.delete(key)) this.toggles.add(key);
            this.update();
          },
        },
        text,
      ),
    );
    if (compare.length > 1) {
      const pick = (name) => {
        this.baseline = name;
        this.update();
      };
      const options = compare.map((name) => [name, name]);
      if (!compare.includes(this.baseline)) this.baseline = null;
      nodes.push(dropdown({ label: "compared with", options }, this.baseline ?? figures[this.key()]?.marks[0]?.ratio_to, pick));
    }
    this.controls.replaceChildren(...nodes, ...buttons);
    this.controls.hidden = !keys.length || !this.controls.children.length;
    if (place >= 0) this.controls.querySelectorAll("button, select, input")[place]?.focus();
  }

  belowFigure(figure) {
    const parts = figureKey(figure, this.page.doc);
    const numbers = figureTable(figure, this.page.doc, this.baseline);
    return [
      this.value.legend ? this.legend() : "",
      parts.length ? keyOf(parts) : "",
      figure.note ? element("p", { class: "note" }, figure.note) : "",
      numbers ? this.details({ summary: "Show as a table", numbers }) : "",
    ].filter(Boolean);
  }

  // Buttons that hide and show methods in all figures.
  legend() {
    const { hidden } = this.page;
    const buttons = this.value.legend.map(({ name, colour: role, dash }) =>
      element(
        "button",
        {
          type: "button",
          "aria-pressed": String(!hidden.has(name)),
          onclick: () => {
            if (!hidden.delete(name)) hidden.add(name);
            this.page.redraw();
          },
        },
        lineSample(colour(role), DASHES[dash]),
        name,
      ),
    );
    return element("div", { class: "legend", role: "group", "aria-label": "Methods; click to hide or show" }, buttons);
  }

  // A section that unfolds; large tables are filled when they are opened.
  details({ summary, table, numbers, lines = [] }) {
    const body = element("div", {});
    const fillBody = () => {
      if (body.firstChild) return;
      if (numbers) body.append(this.table({ columns: numbers[0], rows: numbers[1] }, summary));
      if (table) body.append(this.table(table, summary));
      body.append(
        ...lines.map(([kind, text]) => {
          if (kind === "pre") return element("pre", { tabindex: 0 }, text);
          return element("p", { class: kind === "note" ? "note" : null }, kind === "code" ? element("code", {}, text) : text);
        }),
      );
    };
    const node = element(
      "details",
      {
        class: numbers ? "numbers" : "each",
        open: this.open.has(summary),
        ontoggle: () => {
          if (node.open) this.open.add(summary);
          else this.open.delete(summary);
          if (node.open) fillBody();
        },
      },
      element("summary", {}, summary),
      body,
    );
    if (this.open.has(summary) || table) fillBody();
    return node;
  }

  table({ columns, rows, by_column: byColumn }, name) {
    const doc = this.page.doc;
    const lists = byColumn && byColumn.map((list) => resolve(doc, list));
    const found = rows || lists[0].map((_, place) => lists.map((list) => plain(list[place])));
    const body = found.map((row) =>
      element("tr", {}, row.map((cell, place) => tableCell(cell, place === 0 && !byColumn))),
    );
    const head = element("tr", {}, columns.map((text) => element("th", { scope: "col" }, text)));
    return element(
      "div",
      { class: "wide", tabindex: 0, role: "region", "aria-label": name },
      element("table", { class: byColumn ? "words" : null }, element("thead", {}, head), element("tbody", {}, body)),
    );
  }
}

// A number below 0 stands for "not a single client".
const plain = (value) => (value === "" || value === null || value < 0 ? NONE : String(value));

function tableCell(cell, isHead) {
  const { text, small, bold, dot, chips = [] } = typeof cell === "string" ? { text: cell } : cell;
  return element(
    isHead ? "th" : "td",
    isHead ? { scope: "row" } : {},
    dot ? element("i", { class: "dot", style: `background:${colour(dot)}` }) : null,
    bold ? element("b", {}, text) : text,
    small ? element("small", {}, small) : null,
    chips.map(({ text: said, kind, title }) => element("span", { class: `chip ${kind}`, title: title || null }, said)),
  );
}

const lineSample = (stroke, dash) =>
  shape(
    "svg",
    { width: 24, height: 10, "aria-hidden": "true" },
    shape("line", { x1: 1, x2: 23, y1: 5, y2: 5, stroke, "stroke-width": 2.6, "stroke-dasharray": dash }),
  );

const keyOf = (parts) =>
  element(
    "div",
    { class: "key" },
    parts.map(({ name, colour: role }) =>
      element("span", {}, element("i", { class: "swatch", style: `background:${colour(role)}` }), name),
    ),
  );

// The rows of a table that is given as blocks; see csv_tables.py.
function blocksToRows(blocks, doc) {
  const heads = [];
  const rows = blocks.flatMap((block) => {
    const columns = Object.entries(block)
      .filter(([name]) => name !== "*")
      .map(([name, value]) => [name, resolve(doc, value)]);
    if (block["*"]) {
      const matrix = resolve(doc, block["*"].rows);
      block["*"].names.forEach((name, place) => columns.push([name, matrix.map((row) => row[place])]));
    }
    for (const [name] of columns) if (!heads.includes(name)) heads.push(name);
    const lists = columns.filter(([, value]) => Array.isArray(value));
    const length = lists.length ? Math.max(...lists.map(([, list]) => list.length)) : 1;
    return Array.from({ length }, (_, place) =>
      Object.fromEntries(columns.map(([name, value]) => [name, Array.isArray(value) ? value[place] : value])),
    );
  });
  return [heads, ...rows.map((row) => heads.map((name) => row[name]))];
}

// Cells that a spreadsheet would run as a formula are quoted.
function csv(rows) {
  const cell = (value) => {
    if (!known(value)) return "";
    let text = String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${rows.map((row) => row.map(cell).join(",")).join("\n")}\n`;
}

function save(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// An SVG that looks the same outside the page: it takes the style sheet along.
function standalone(source) {
  const copy = source.cloneNode(true);
  const { width, height } = source.viewBox.baseVal;
  const style = `font-family: ${getComputedStyle(document.body).fontFamily}`;
  const sheet = shape("style", {}, document.querySelector("style").textContent);
  fill(copy, { xmlns: SVG, width, height, style, "data-theme": document.documentElement.dataset.theme }, [sheet]);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

// The figure of a card as it looks now, with its title and its key, as a PNG.
async function image(card, zoom = 2) {
  const drawing = card.querySelector(".plot svg[viewBox]");
  const part = standalone(drawing);
  const width = part.width + 32;
  const canvas = element("canvas");
  const pen = canvas.getContext("2d");
  const family = getComputedStyle(document.body).fontFamily;
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
  pen.font = `12px ${family}`;
  const keys = [];
  let [x, y] = [0, 0];
  for (const node of card.querySelectorAll(".legend button[aria-pressed=true], .key > span")) {
    if (!node.checkVisibility()) continue;
    const length = 30 + pen.measureText(node.textContent).width;
    if (x && x + length > width - 32) [x, y] = [0, y + 22];
    keys.push({ node, x: x + 16, y });
    x += length + 18;
  }
  const top = 44;
  const height = top + part.height + 20 + (keys.length ? y + 26 : 0);
  fill(canvas, { width: width * zoom, height: height * zoom }, []);
  pen.scale(zoom, zoom);
  pen.fillStyle = variable("--card");
  pen.fillRect(0, 0, width, height);
  pen.fillStyle = variable("--ink");
  pen.font = `600 15px ${family}`;
  pen.fillText(drawing.getAttribute("aria-label"), 16, 28, width - 32);
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(part.text)}`;
  await picture.decode();
  pen.drawImage(picture, 16, top, part.width, part.height);
  pen.font = `12px ${family}`;
  for (const { node, x: left, y: down } of keys) {
    const middle = top + part.height + 20 + down;
    const [line, swatch] = [node.querySelector("line"), node.querySelector(".swatch")];
    if (line) {
      pen.strokeStyle = getComputedStyle(line).stroke;
      pen.lineWidth = 2.4;
      pen.setLineDash((line.getAttribute("stroke-dasharray") || "").split(" ").filter(Boolean).map(Number));
      pen.beginPath();
      pen.moveTo(left, middle);
      pen.lineTo(left + 22, middle);
      pen.stroke();
    } else if (swatch) {
      pen.fillStyle = getComputedStyle(swatch).backgroundColor;
      pen.fillRect(left + 6, middle - 6, 12, 12);
    }
    pen.fillStyle = variable("--soft");
    pen.fillText(node.textContent, left + 30, middle + 4);
  }
  return new Promise((done) => {
    canvas.toBlob(done, "image/png");
  });
}

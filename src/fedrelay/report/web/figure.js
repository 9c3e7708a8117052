// What all figures share: a card with controls and a plot, a hover box, and the buttons for PNG and CSV.

const tip = document.querySelector(".tip");

function showTip(event, title, rows) {
  tip.replaceChildren(
    element("b", {}, title),
    ...rows.map(([name, value, colour]) =>
      element(
        "div",
        {},
        element("span", {}, colour ? element("i", { class: "dot", style: `background:${colour}` }) : null, name),
        element("span", {}, value),
      ),
    ),
  );
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - 16 - box.width : event.clientX + 16;
  tip.style.left = `${Math.max(6, left)}px`;
  tip.style.top = `${Math.max(6, Math.min(innerHeight - box.height - 6, event.clientY + 14))}px`;
}

function hideTip() {
  tip.hidden = true;
}
addEventListener("scroll", hideTip, { passive: true });

function segments(label, choices, value, choose) {
  const buttons = choices.map(([key, text]) =>
    element(
      "button",
      {
        type: "button",
        "data-value": key,
        "aria-pressed": String(key === value),
        onclick: () => {
          for (const other of buttons) other.setAttribute("aria-pressed", String(other.dataset.value === key));
          choose(key);
        },
      },
      text,
    ),
  );
  return element("span", { class: "segments", role: "group", "aria-label": label }, buttons);
}

// A choice from a list whose entries may change while a run goes on.
function chooser(label, choose) {
  const select = element("select", { "aria-label": label, onchange: () => choose(select.value) });
  const offer = (choices) => {
    const wanted = choices.map(([key]) => key).join("\n");
    if (select.dataset.offered !== wanted) {
      const before = select.value;
      select.replaceChildren(...choices.map(([key, text]) => element("option", { value: key }, text)));
      if (choices.some(([key]) => key === before)) select.value = before;
      select.dataset.offered = wanted;
    }
    return select.value;
  };
  return { node: element("label", {}, label, select), select, offer };
}

function figure(name, { controls = [], below = [] } = {}) {
  const plot = element("div", { class: "plot", "data-figure": name });
  let sheet = () => [];
  const tools = element(
    "div",
    { class: "tools" },
    element(
      "button",
      {
        type: "button",
        "data-export": "png",
        title: "This figure as a picture",
        onclick: () => savePicture(plot, name),
      },
      "PNG",
    ),
    element(
      "button",
      {
        type: "button",
        "data-export": "csv",
        title: "The numbers of this figure",
        onclick: () => save(`${name}.csv`, new Blob([csv(sheet())], { type: "text/csv" })),
      },
      "CSV",
    ),
  );
  const choices = element("div", { class: "controls", hidden: !controls.length }, controls);
  const card = element(
    "div",
    { class: "card" },
    choices,
    plot,
    below,
    tools,
  );
  return {
    card,
    plot,
    unfolded: false,
    show(content, numbers) {
      plot.replaceChildren(...[content].flat());
      sheet = numbers;
      tools.hidden = false;
      choices.hidden = !controls.length;
      tools.firstChild.hidden = !plot.querySelector("svg[viewBox]");
    },
    // Where there is nothing to choose either, controls would only ask to be tried.
    empty(text, choosable = false) {
      plot.replaceChildren(element("p", { class: "empty" }, text));
      tools.hidden = true;
      choices.hidden = !choosable;
    },
  };
}

// The same numbers as a table, for readers without a pointer; filled when it is opened, and open after a redraw.
function asTable(frame, head, rows) {
  const box = element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "The figure as a table" });
  const fill = () =>
    box.replaceChildren(
      element(
        "table",
        {},
        headings(head),
        element(
          "tbody",
          {},
          rows().map(([name, ...cells]) =>
            element(
              "tr",
              {},
              rowHead(...[name].flat()),
              cells.map((cell) => element("td", {}, cell)),
            ),
          ),
        ),
      ),
    );
  if (frame.unfolded) fill();
  const details = element(
    "details",
    {
      class: "numbers",
      open: frame.unfolded,
      ontoggle: () => {
        frame.unfolded = details.open;
        if (details.open && !box.firstChild) fill();
      },
    },
    element("summary", {}, "as a table"),
    box,
  );
  return details;
}

// Cells that a spreadsheet would take for a formula are disarmed.
function csv(rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    let text = String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function save(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

const DRAWN = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-opacity",
  "fill-opacity",
  "opacity",
  "font-size",
  "font-weight",
  "font-family",
  "text-anchor",
  "stroke-linecap",
  "stroke-linejoin",
  "visibility",
  "paint-order",
];

// A picture stands alone: colours that come from the style sheet are written into it.
function standalone(source) {
  const copy = source.cloneNode(true);
  const originals = [source, ...source.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, index) => {
    const style = getComputedStyle(originals[index]);
    for (const name of DRAWN) node.style.setProperty(name, style.getPropertyValue(name));
    if (style.transform !== "none" && originals[index] !== source) node.setAttribute("transform", style.transform);
    node.removeAttribute("class");
  });
  const { width, height } = source.viewBox.baseVal;
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

// What colours and lines mean stands beside a figure as text; a picture takes it along.
function keysOf(card) {
  const shown = (node) => node.checkVisibility();
  return [...card.querySelectorAll(".legend button[aria-pressed=true], .key > span")].filter(shown).map((node) => {
    const [line, swatch] = [node.querySelector("line"), node.querySelector(".swatch")];
    return {
      text: node.textContent,
      line: line && getComputedStyle(line).stroke,
      dash: line && (line.getAttribute("stroke-dasharray") || "").split(" ").filter(Boolean).map(Number),
      fill: swatch && getComputedStyle(swatch).backgroundColor,
    };
  });
}

const KEY = { mark: 30, gap: 18, line: 22, font: 12 };

function laidOut(items, width) {
  const pen = element("canvas").getContext("2d");
  pen.font = `${KEY.font}px ${getComputedStyle(document.body).fontFamily}`;
  let [x, y] = [0, 0];
  const placed = items.map((item) => {
    const long = KEY.mark + pen.measureText(item.text).width;
    if (x && x + long > width) [x, y] = [0, y + KEY.line];
    const found = { ...item, x, y };
    x += long + KEY.gap;
    return found;
  });
  return { items: placed, height: items.length ? y + KEY.line : 0 };
}

function drawKeys(pen, items, left, top) {
  pen.font = `${KEY.font}px ${getComputedStyle(document.body).fontFamily}`;
  for (const { text, line, dash, fill, x, y } of items) {
    const middle = top + y + 7;
    if (line) {
      pen.strokeStyle = line;
      pen.lineWidth = 2.4;
      pen.setLineDash(dash);
      pen.beginPath();
      pen.moveTo(left + x, middle);
      pen.lineTo(left + x + 22, middle);
      pen.stroke();
    } else if (fill) {
      pen.fillStyle = fill;
      pen.fillRect(left + x + 6, middle - 6, 12, 12);
    }
    pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--soft");
    pen.fillText(text, left + x + KEY.mark, middle + 4);
  }
}

async function picture(plot, zoom = 2) {
  const drawings = [...plot.querySelectorAll("svg[viewBox]")];
  const parts = drawings.map(standalone);
  const width = Math.max(...parts.map((part) => part.width)) + 32;
  const keys = laidOut(keysOf(plot.closest(".card")), width - 32);
  const height = parts.reduce((sum, part) => sum + part.height + 16, 48) + keys.height;
  const canvas = element("canvas", { width: width * zoom, height: height * zoom });
  const pen = canvas.getContext("2d");
  pen.scale(zoom, zoom);
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--card");
  pen.fillRect(0, 0, width, height);
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--ink");
  pen.font = `600 15px ${getComputedStyle(document.body).fontFamily}`;
  pen.fillText(drawings[0].getAttribute("aria-label"), 16, 28, width - 32);
  let top = 44;
  for (const part of parts) {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(part.text)}`;
    await image.decode();
    pen.drawImage(image, 16, top, part.width, part.height);
    top += part.height + 16;
  }
  drawKeys(pen, keys.items, 16, top);
  return new Promise((done) => {
    canvas.toBlob(done, "image/png");
  });
}

async function savePicture(plot, name) {
  save(`${name}.png`, await picture(plot));
}

// The width a plot has now; text keeps its size on every screen.
const room = (plot) => Math.max(280, Math.round(plot.clientWidth || plot.parentElement?.clientWidth || 900));

function axes(svg, { x, y, left, right, top, bottom, xTicks, yTicks, xText, yText, xName, yName }) {
  for (const value of yTicks) {
    svg.append(
      shape("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
      shape("text", { class: "soft", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, yText(value)),
    );
  }
  svg.append(shape("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  for (const value of xTicks)
    svg.append(shape("text", { class: "soft", x: x(value), y: bottom + 18, "text-anchor": "middle" }, xText(value)));
  svg.append(
    shape("text", { class: "soft", x: right, y: bottom + 38, "text-anchor": "end" }, xName),
    shape("text", { class: "soft", x: 0, y: top - 14 }, yName),
  );
}

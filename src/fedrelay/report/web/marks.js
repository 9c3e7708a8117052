// Draws any figure value as SVG. Nothing here knows what a figure is about.

// Returns the nodes of a figure: an SVG, which may scroll sideways.
function drawFigure(figure, { width, doc, hidden = new Set(), toggles = new Set(), ratioTo = null }) {
  const marks = figure.marks
    .map((mark) => Object.fromEntries(Object.entries(mark).map(([key, value]) => [key, resolve(doc, value)])))
    .map((mark) => withoutHidden(mark, hidden))
    .filter(Boolean);
  if (!marks.length) return null;
  if (ratioTo !== null && marks[0].kind === "bars") marks[0].ratio_to = ratioTo;
  return (DRAW[marks[0].kind] || drawLines)(figure, marks, width, toggles);
}

// Marks and rows of hidden methods are left out.
function withoutHidden(mark, hidden) {
  if (!mark.by_method || !hidden.size) return mark;
  const shown = (row) => !hidden.has(row.name ?? row);
  if (mark.kind === "line") return shown(mark) ? mark : null;
  if (mark.groups)
    return { ...mark, groups: mark.groups.map((group) => ({ ...group, rows: group.rows.filter(shown) })) };
  const kept = mark.rows.map(shown);
  const pick = (list) => list?.filter((_, place) => kept[place]);
  return kept.some(Boolean) ? { ...mark, rows: pick(mark.rows), values: pick(mark.values) } : null;
}

const newSvg = (figure, width, height) =>
  shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": figure.title });

const DRAW = { bars: drawBars, points: drawPoints, stack: drawStack, mix: drawMix, cells: drawCells, sequences: drawSequences };

function drawLines(figure, marks, width, toggles) {
  const height = width < 620 ? 300 : 400;
  const [left, right, top, bottom] = [52, width - 12, 34, height - 48];
  const log = { x: toggles.has("log-x") || figure.x.scale === "log", y: toggles.has("log-y") || figure.y.scale === "log" };
  const seeds = toggles.has("seeds");
  const lines = marks
    .filter(({ kind, layer }) => kind === "line" && (!layer || toggles.has(layer)))
    .map((mark) => ({
      ...mark,
      points: mark.x
        .map((x, each) => ({ x, y: mark.y[each], error: mark.error?.[each] || 0, round: mark.rounds?.[each] }))
        .filter(({ x, y }) => known(x) && known(y) && (!log.x || x > 0) && (!log.y || y > 0)),
    }));
  const points = lines.flatMap((line) => line.points);
  if (!points.length) return null;
  const rules = marks.filter(({ kind }) => kind === "rule");
  const [x, y] = [
    makeScale(fitX(points, log.x), [left, right - 4], log.x),
    makeScale(fitY(points, rules, figure.y, log.y, seeds), [bottom, top], log.y),
  ];
  const svg = newSvg(figure, width, height);
  drawAxes(svg, { figure, x, y, left, right, top, bottom, width });
  for (const rule of rules)
    svg.append(
      shape("line", {
        x1: left, x2: right, y1: y(rule.y), y2: y(rule.y), stroke: colour(rule.colour), "stroke-dasharray": DASHES[rule.dash || 0],
      }),
    );
  const inside = (value) => Math.min(bottom, Math.max(top, log.y && value <= 0 ? bottom : y(value)));
  const at = (point, value) => `${x(point.x).toFixed(1)},${value.toFixed(1)}`;
  for (const line of lines) {
    const path = `M${line.points.map((point) => at(point, y(point.y))).join("L")}`;
    if (line.error && !seeds) {
      const edge = (side) => line.points.map((point) => at(point, inside(point.y + side * point.error)));
      const d = `M${[...edge(1), ...edge(-1).reverse()].join("L")}Z`;
      svg.append(shape("path", { class: "band", d, fill: colour(line.colour), "fill-opacity": 0.16 }));
    }
    svg.append(
      shape("path", {
        class: line.layer ? "thin" : "line", d: path, fill: "none", stroke: colour(line.colour), "stroke-linejoin": "round",
        "stroke-width": line.layer ? 1 : 2.4, "stroke-opacity": line.layer ? 0.5 : 1, "stroke-dasharray": DASHES[line.dash],
      }),
    );
    for (const point of line.dots || line.points.length === 1 ? line.points : [])
      svg.append(shape("circle", { cx: x(point.x), cy: y(point.y), r: 4, fill: colour(line.colour) }));
  }
  crosshair(svg, figure, lines.filter(({ layer }) => !layer), { x, y, left, right, top, bottom });
  return svg;
}

function fitX(points, log) {
  const values = points.map(({ x }) => x);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return [low === high && !log ? 0 : low, high];
}

// The limits of the data with a little room; shares stay between 0 and 1.
function fitY(points, rules, axis, log, seeds) {
  if (axis.limits) return axis.limits;
  const spread = ({ error }) => (seeds ? 0 : error);
  let low = Math.min(...points.map((point) => point.y - (log ? 0 : spread(point))), ...rules.map(({ y }) => y));
  let high = Math.max(...points.map((point) => point.y + spread(point)), ...rules.map(({ y }) => y));
  if (log) return [low, high];
  const room = 0.05 * (high - low || Math.abs(high) || 1);
  [low, high] = [low - room, high + room];
  return axis.format === "percent" ? [Math.max(0, low), Math.min(1, high)] : [low, high];
}

// Shares of which all ticks are whole percents have no decimals.
function tickText(value, form, ticks) {
  const whole = ticks.every((each) => Math.abs(each * 100 - Math.round(each * 100)) < 1e-6);
  return format(value, form, ...(form === "percent" || form === "points" ? [whole ? 0 : 1] : []));
}

function drawAxes(svg, { figure, x, y, left, right, top, bottom, width }) {
  const yTicks = y.ticks(5);
  for (const value of yTicks) {
    const text = tickText(value, figure.y.format, yTicks);
    svg.append(
      shape("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
      label(text, left - 8, y(value) + 4, { "text-anchor": "end" }),
    );
  }
  svg.append(shape("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  const counted = figure.x.format === "count";
  for (const [value, text] of figure.x.ticks || [])
    svg.append(label(text, x(value), bottom + 18, { "text-anchor": "middle" }));
  for (const value of figure.x.ticks ? [] : x.ticks(width < 520 ? 4 : 8))
    if (!counted || Number.isInteger(value))
      svg.append(label(format(value, figure.x.format), x(value), bottom + 18, { "text-anchor": "middle" }));
  svg.append(label(figure.x.label, right, bottom + 38, { "text-anchor": "end" }), label(figure.y.label, 0, top - 14));
}

// Shows all values at one place, by pointer or arrow keys.
function crosshair(svg, figure, lines, { x, y, left, right, top, bottom }) {
  const rule = shape("line", { y1: top, y2: bottom, stroke: "var(--soft)", visibility: "hidden" });
  const dots = lines.map((line) =>
    shape("circle", { r: 4.5, fill: colour(line.colour), stroke: "var(--card)", "stroke-width": 2, visibility: "hidden" }),
  );
  const cover = shape("rect", {
    x: left, y: top, width: right - left, height: bottom - top, fill: "transparent", tabindex: 0, role: "application",
    "aria-label": "Values; use the arrow keys",
  });
  svg.append(rule, ...dots, cover);
  const places = [...new Set(lines.flatMap(({ points }) => points.map((point) => point.x)))].sort((a, b) => a - b);
  let at = places.length - 1;
  const nearest = (list, value, of) =>
    list.reduce((best, each) => (Math.abs(of(each) - value) < Math.abs(of(best) - value) ? each : best));

  function show(value, event) {
    for (const name of ["x1", "x2"]) rule.setAttribute(name, x(value));
    rule.setAttribute("visibility", "visible");
    const rows = [];
    lines.forEach((line, place) => {
      const beyond = !line.points.length || x(value) > x(line.points.at(-1).x) + 12;
      dots[place].setAttribute("visibility", beyond ? "hidden" : "visible");
      if (beyond) return;
      const point = nearest(line.points, value, (each) => each.x);
      dots[place].setAttribute("cx", x(point.x));
      dots[place].setAttribute("cy", y(point.y));
      const error = line.error ? ` ± ${format(point.error, figure.y.format)}` : "";
      const round = known(point.round) ? `  (round ${count(point.round)})` : "";
      rows.push([point.y, [line.name, `${format(point.y, figure.y.format)}${error}${round}`, line.colour]]);
    });
    rows.sort((one, other) => other[0] - one[0]);
    const named = (figure.x.ticks || []).find(([place]) => place === value);
    const text = named ? named[1] : format(value, figure.x.format);
    showTip(event, figure.x.tip ? `${figure.x.tip} ${text}` : `${figure.x.label}: ${text}`, rows.map(([, row]) => row));
  }
  const leave = () => {
    hideTip();
    for (const node of [rule, ...dots]) node.setAttribute("visibility", "hidden");
  };
  cover.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const value = x.invert((event.clientX - box.left) * (svg.viewBox.baseVal.width / box.width));
    at = places.indexOf(nearest(places, value, (each) => each));
    show(places[at], event);
  });
  cover.addEventListener("pointerleave", leave);
  cover.addEventListener("blur", leave);
  cover.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -places.length, End: places.length }[event.key];
    if (!step) return;
    event.preventDefault();
    at = Math.max(0, Math.min(places.length - 1, at + step));
    const box = svg.getBoundingClientRect();
    const left = box.left + x(places[at]) * (box.width / svg.viewBox.baseVal.width);
    show(places[at], { clientX: left, clientY: box.top + 60 });
  });
}

const ratioText = (factor) => {
  const text = factor >= 10 ? factor.toFixed(0) : factor >= 0.1 ? factor.toFixed(1) : Number(factor.toPrecision(1));
  return `${text}×`;
};
const ratioOf = (group, row, base) => {
  const first = group.rows.find(({ name }) => name === base);
  return first && first !== row && first.value && row.value ? first.value / row.value : null;
};

function drawBars(figure, [mark], width) {
  const groups = mark.groups.filter((group) => group.rows.length);
  if (!groups.length) return null;
  const [line, gap, left, right] = [24, 38, width < 560 ? 92 : 150, width - 92];
  const most = Math.max(1e-9, ...groups.flatMap(({ rows }) => rows.map(({ value }) => value || 0)));
  const height = sum(groups.map(({ rows }) => gap - 8 + rows.length * line + 12));
  const svg = newSvg(figure, width, height);
  let top = 0;
  for (const group of groups) {
    svg.append(shape("text", { x: 0, y: top + 18, "font-weight": 600 }, group.title));
    top += gap - 8;
    for (const row of group.rows) {
      const name = label(clip(row.name, width < 560 ? 12 : 20), left - 8, top + 16, { "text-anchor": "end" });
      name.append(shape("title", {}, row.name));
      svg.append(name);
      if (!known(row.value)) svg.append(label(row.missing, left, top + 16));
      else {
        const length = Math.max(2, (row.value / most) * (right - left));
        const text = format(row.value, mark.format);
        const factor = ratioOf(group, row, mark.ratio_to);
        const bar = { class: "bar", x: left, y: top + 3, width: length, height: line - 7, rx: 3, fill: colour(row.colour) };
        const style = `fill:var(${factor >= 1 ? "--good" : "--warn"})`;
        svg.append(
          withTip(shape("rect", bar), row.name, () => [[group.title, text, row.colour]]),
          shape(
            "text", { x: left + length + 8, y: top + 16 }, text,
            factor === null ? null : shape("tspan", { dx: 6, style, "font-weight": 600 }, ratioText(factor)),
          ),
        );
      }
      top += line;
    }
    top += 12;
  }
  return svg;
}

// The ends of the whisker of a row, which may be uneven.
const endsOf = ({ value, error, ends }) => ends || [value - (error || 0), value + (error || 0)];

const errorText = ({ error, ends }, form) =>
  ends ? ` (${ends.map((end) => format(end, form)).join(" … ")})` : error ? ` ± ${format(error, form)}` : "";

function drawPoints(figure, [mark], width) {
  const [line, left, right] = [34, width < 560 ? 100 : 170, width - 40];
  const height = mark.rows.length * line + 52;
  const bottom = height - 40;
  const [lowest, highest] = figure.x.bounds || [-Infinity, Infinity];
  const inside = (value) => Math.min(Math.max(value, lowest), highest);
  const ends = mark.rows.flatMap((row) => [row.value, ...endsOf(row)]).map(inside);
  const room = 0.08 * (Math.max(...ends) - Math.min(...ends) || 0.1);
  const least = Math.min(...ends, ...(figure.x.zero ? [0] : [])) - room;
  const most = Math.max(...ends, ...(figure.x.zero ? [0] : [])) + room;
  const x = makeScale([figure.x.zero ? inside(least) : Math.max(0, least), inside(most)], [left, right]);
  const svg = newSvg(figure, width, height);
  const ticks = x.ticks(width < 560 ? 4 : 6);
  for (const value of ticks)
    svg.append(
      shape("line", { class: figure.x.zero && value === 0 ? "axis" : "grid", x1: x(value), x2: x(value), y1: 0, y2: bottom }),
      label(tickText(value, mark.format, ticks), x(value), bottom + 16, { "text-anchor": "middle" }),
    );
  svg.append(label(figure.x.label, width < 560 ? width : right, bottom + 36, { "text-anchor": "end" }));
  mark.rows.forEach((row, place) => {
    const y = place * line + line / 2 + 6;
    const stroke = { stroke: colour(row.colour), "stroke-width": 2 };
    const whiskerEnds = endsOf(row);
    const [from, to] = whiskerEnds.map((end) => x(inside(end)));
    const caps = whiskerEnds.filter((end) => inside(end) === end).map(x); // a whisker that is cut off has none
    const name = label(clip(row.name, width < 560 ? 13 : 22), left - 12, y + 4, { "text-anchor": "end" });
    name.append(shape("title", {}, row.remark ? `${row.name} (${row.remark})` : row.name));
    const text = `${format(row.value, mark.format)}${errorText(row, mark.format)}`;
    const whisker = row.error || row.ends
      ? [
          shape("line", { x1: from, x2: to, y1: y, y2: y, ...stroke }),
          ...caps.map((end) => shape("line", { x1: end, x2: end, y1: y - 4, y2: y + 4, ...stroke })),
        ]
      : [];
    const dot = shape("circle", { class: "point", cx: x(row.value), cy: y, r: 5.5, fill: colour(row.colour) });
    const value = shape("text", { x: x(row.value), y: y - 9, "text-anchor": "middle", style: "font-size:11px" },
      format(row.value, mark.format));
    const rows = () => [[figure.title, text, row.colour], ...(row.remark ? [["", row.remark]] : [])];
    svg.append(name, withTip(shape("g", {}, ...whisker, dot, value), row.name, rows));
  });
  return svg;
}

function drawStack(figure, [mark], width) {
  const [line, right] = [50, width - 84];
  const totals = mark.values.map(sum);
  const most = Math.max(1e-9, ...totals);
  const svg = newSvg(figure, width, mark.rows.length * line + 4);
  mark.rows.forEach((name, row) => {
    let x = 0;
    svg.append(shape("text", { x: 0, y: row * line + 14 }, name));
    mark.values[row].forEach((value, place) => {
      if (!value) return;
      const part = mark.parts[place];
      const length = (value / most) * right;
      const box = { class: "bar", x, y: row * line + 20, width: Math.max(0.5, length - 1), height: 20, rx: 3 };
      svg.append(
        withTip(shape("rect", { ...box, fill: colour(part.colour) }), name, () => [
          [part.name, format(value, mark.format), part.colour],
          ["share", percent(value / totals[row], 0)],
        ]),
      );
      x += length;
    });
    svg.append(label(format(totals[row], mark.format), x + 8, row * line + 34));
  });
  return svg;
}

function drawMix(figure, [mark], width) {
  const height = 200;
  const bar = width / mark.rows.length;
  const gap = bar > 6 ? Math.min(3, bar * 0.15) : 0;
  const every = Math.ceil(22 / bar); // narrow columns have a label now and then, very narrow ones have none
  const svg = newSvg(figure, width, height);
  mark.rows.forEach((row, place) => {
    const name = mark.names ? mark.names[place] : row;
    const counts = mark.counts[row];
    const total = sum(counts);
    const column = shape("g", { class: "column" });
    let bottom = height - 22;
    for (const [role, each] of byColour(counts, mark.parts)) {
      const tall = ((height - 26) * each) / total;
      bottom -= tall;
      const box = { x: place * bar, y: bottom, width: Math.max(0.5, bar - gap), height: tall };
      column.append(shape("rect", { ...box, fill: colour(role) }));
    }
    svg.append(withTip(column, `${figure.x.label} ${name}`, () => partRows(counts, mark.parts)));
    if (every <= 4 && place % every === 0)
      svg.append(label(clip(String(name), Math.max(3, Math.floor((bar * every) / 6))), place * bar + bar / 2, height - 6, { "text-anchor": "middle", style: "font-size:10px" }));
  });
  return svg;
}

function drawCells(figure, [mark], width) {
  const room = (width - 112) / mark.columns.length;
  const [across, down] = mark.texts ? [Math.max(34, Math.min(84, room)), 34] : Array(2).fill(Math.max(5, Math.min(30, room)));
  const [left, top, small] = [80, 34, "font-size:10.5px"];
  const svg = newSvg(figure, Math.max(width, left + across * mark.columns.length), top + down * mark.rows.length + 14);
  const [low, high] = mark.limits;
  const middle = { "text-anchor": "middle" };
  svg.append(
    label(`${mark.column_title} →`, left, 12, { style: small }),
    label(`${mark.row_title} ↓`, 0, 28, { style: small }),
  );
  if (across >= 18)
    mark.columns.forEach((name, index) =>
      svg.append(label(name, left + (index + 0.5) * across, top - 6, { ...middle, style: small })),
    );
  mark.values.forEach((row, hop) => {
    const y = top + hop * down;
    if (down >= 11) svg.append(label(mark.rows[hop], left - 8, y + down / 2 + 4, { "text-anchor": "end", style: small }));
    row.forEach((value, index) => {
      const x = left + index * across;
      const share = known(value) ? (value - low) / (high - low) : 0;
      const fill = mark.diverging ? diverging(mark.diverging === "up" ? share : 1 - share) : shade(share ** (mark.gamma || 1));
      const first = mark.values[index]?.[index];
      const box = { x, y, width: across - 1, height: down - 1, rx: Math.min(4, down / 6) };
      const stroke = mark.since && index === hop ? "var(--ink)" : null;
      const cell = shape("rect", { class: "cell", ...box, fill: known(value) ? fill : "var(--hover)", stroke });
      const style = `font-size:${mark.texts ? 12 : 9.5}px;pointer-events:none;fill:${readableOn(fill)}`;
      const where = { x: x + across / 2 - 0.5, y: y + down / 2 + 4, ...middle, style };
      const text = mark.texts ? mark.texts[hop][index] : down >= 20 && known(value) ? (100 * value).toFixed(0) : null;
      const node = shape("g", {}, cell, text === null ? null : shape("text", where, text));
      svg.append(
        withTip(node, `${mark.row_title} ${mark.rows[hop]}`, () => [
          [`${mark.column_title} ${mark.columns[index]}`, format(value, mark.format)],
          ...(mark.since
            ? [
                [mark.since, format(first, mark.format)],
                ["change", `${(100 * (value - first)).toFixed(1)} points`],
              ]
            : []),
        ]),
      );
    });
  });
  return svg;
}

const MOST_ROWS = 60;

function drawSequences(figure, [mark], width) {
  const shown = mark.rows.slice(0, MOST_ROWS);
  const longest = Math.max(1, ...shown.map((row) => row.length));
  const letters = Math.max(0, ...(mark.names || []).map((name) => Math.min(9, name.length)));
  const column = Math.max(34, 6.8 * letters + 22, Math.min(84, (width - 170) / longest));
  const [left, line, top, small] = [88, 34, 30, "font-size:10.5px"];
  const total = left + longest * column + 80;
  const height = top + shown.length * line + 8;
  const svg = newSvg(figure, total, height);
  fill(svg, { width: total, height }, []);
  const every = Math.ceil(longest / 24);
  for (let hop = 0; hop < longest; hop += every) {
    const text = hop === 0 ? `${figure.x.label} 1` : String(hop + 1);
    svg.append(label(text, left + (hop + 0.5) * column, 18, { "text-anchor": "middle", style: small }));
  }
  const flags = new Map((mark.flags || []).map((flag) => [`${flag.row} ${flag.place}`, flag]));
  const named = (item) => String(mark.names?.[item] ?? item);
  const side = (text, index) => (Array.isArray(text) ? text[index] : text) || "";
  shown.forEach((row, index) => {
    const y = top + index * line + line / 2;
    const stroke = colour(`route-${index % 7}`);
    const end = left + row.length * column;
    const track = highlightable(index, `${mark.row} ${index + 1}`);
    const path = { fill: "none", stroke, "stroke-width": 2.2, "stroke-linecap": "round" };
    track.append(
      label(side(mark.before, index), left - 14, y + 4, { "text-anchor": "end", style: small }),
      label(row.length ? side(mark.after, index) : "", end + 14, y + 4, { style: small }),
      shape("path", { ...path, d: `M${left - 8},${y}L${end + 8},${y}`, "stroke-dasharray": mark.dotted ? "1 4" : null }),
    );
    row.forEach((item, hop) => {
      const x = left + (hop + 0.5) * column;
      const flag = flags.get(`${index} ${hop}`);
      const text = clip(named(item), 9);
      const half = Math.max(12, 3.4 * text.length + 6);
      const look = flag?.absent ? { stroke: "var(--warn)", "stroke-dasharray": "2 3" } : { stroke };
      const node = shape(
        "g", { class: flag?.absent ? "client absent" : "client", "data-client": item },
        shape("rect", { x: x - half, y: y - 12, width: 2 * half, height: 24, rx: 12, fill: "var(--card)", "stroke-width": 2, ...look }),
        shape("text", { class: flag?.absent ? "soft" : null, x, y: y + 4, "text-anchor": "middle", style: small }, text),
        flag ? shape("text", { class: "fault", x: x + half - 2, y: y - 6 }, "!") : null,
      );
      const rows = () => [
        ...(flag ? [[flag.what, flag.done]] : []),
        ...(mark.counts ? partRows(mark.counts[item], mark.parts) : []),
      ];
      const where = `${mark.item} ${named(item)}, ${figure.x.label.toLowerCase()} ${hop + 1} of ${mark.row} ${index + 1}`;
      track.append(withTip(node, flag?.absent ? `${where}, left out` : where, rows));
    });
    svg.append(track);
  });
  const box = element("div", { class: "scroll", tabindex: total > width ? 0 : null }, svg);
  if (shown.length === mark.rows.length) return box;
  return element("div", {}, box, element("p", { class: "note" }, `${count(shown.length)} of ${count(mark.rows.length)} rows are drawn.`));
}

// A route that can be highlighted by pointer or key; the others fade.
function highlightable(index, name) {
  const press = (event) => {
    if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    const root = event.currentTarget.ownerSVGElement;
    const own = event.currentTarget.classList.toggle("chosen");
    for (const other of root.querySelectorAll("[data-route]")) {
      if (other !== event.currentTarget) other.classList.remove("chosen");
      other.style.opacity = own && other !== event.currentTarget ? "0.1" : "";
    }
  };
  return shape("g", {
    class: "track", "data-route": index, tabindex: 0, role: "button", "aria-label": `Highlight ${name}`, onclick: press, onkeydown: press,
  });
}

// The numbers of a figure as a table: heads and rows.
function figureTable(figure, doc, ratioTo) {
  const mark = Object.fromEntries(Object.entries(figure.marks[0]).map(([key, value]) => [key, resolve(doc, value)]));
  const show = (value) => format(value, mark.format);
  switch (mark.kind) {
    case "bars": {
      const cell = (group, row) => {
        const factor = ratioOf(group, row, ratioTo ?? mark.ratio_to);
        return known(row.value) ? `${show(row.value)}${factor === null ? "" : `  ${ratioText(factor)}`}` : row.missing;
      };
      const names = mark.groups[0].rows.map(({ name }) => name);
      return [
        ["Method", ...mark.groups.map(({ title }) => title)],
        names.map((name, place) => [name, ...mark.groups.map((group) => cell(group, group.rows[place]))]),
      ];
    }
    case "stack":
      return [
        ["", ...mark.parts.map(({ name }) => name), "total"],
        mark.rows.map((name, place) => [name, ...mark.values[place].map((each) => show(each)), show(sum(mark.values[place]))]),
      ];
    case "mix":
      return [
        [figure.x.label, ...mark.parts.map(({ name }) => name), "samples"],
        mark.rows.map((row, place) => [
          String(mark.names ? mark.names[place] : row), ...mark.counts[row].map(count), count(sum(mark.counts[row])),
        ]),
      ];
    case "cells":
      return [
        [mark.row_title, ...mark.columns.map((name) => (mark.since ? `on ${name}` : `${mark.column_title} ${name}`))],
        mark.values.map((row, place) => [mark.rows[place], ...row.map(show)]),
      ];
    default:
      return null;
  }
}

// What colours mean: entries with a name and a colour.
function figureKey(figure, doc) {
  const mark = figure.marks[0] && { ...figure.marks[0], parts: resolve(doc, figure.marks[0].parts) };
  return mark && (mark.kind === "stack" || mark.kind === "mix") && mark.parts.length <= 10 ? mark.parts : [];
}

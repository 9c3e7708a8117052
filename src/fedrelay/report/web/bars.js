// Bars made of parts, one for each row, with a key and a table below: who sent what, and what went wrong.

// rows: { name, parts: Map of key → number }; series: [key, name, colour].
function stackedBars(frame, rows, series, text, { label, mark }) {
  const width = room(frame.plot);
  const [line, right] = [50, width - 84];
  const sums = rows.map(({ parts }) => series.reduce((sum, [key]) => sum + (parts.get(key) || 0), 0));
  const most = Math.max(1e-9, ...sums);
  const svg = shape("svg", {
    viewBox: `0 0 ${width} ${rows.length * line + 4}`,
    role: "img",
    "aria-label": label,
  });
  rows.forEach(({ name, parts }, index) => {
    let x = 0;
    svg.append(shape("text", { x: 0, y: index * line + 14 }, name));
    for (const [key, part, colour] of series) {
      const value = parts.get(key) || 0;
      if (!value) continue;
      const long = (value / most) * right;
      const bar = shape("rect", {
        class: mark,
        x,
        y: index * line + 20,
        width: Math.max(0.5, long - 1),
        height: 20,
        rx: 3,
        fill: colour,
      });
      bar.addEventListener("pointermove", (event) =>
        showTip(event, name, [
          [part, text(value), colour],
          ["share", percent(value / sums[index], 0)],
        ]),
      );
      bar.addEventListener("pointerleave", hideTip);
      svg.append(bar);
      x += long;
    }
    svg.append(shape("text", { class: "soft", x: x + 8, y: index * line + 34 }, text(sums[index])));
  });
  const table = asTable(frame, ["", ...series.map(([, name]) => name), "together"], () =>
    rows.map(({ name, parts }, index) => [name, ...series.map(([key]) => text(parts.get(key) || 0)), text(sums[index])]),
  );
  return [svg, swatches(series.map(([, name, colour]) => [name, colour])), table];
}

const swatches = (names) =>
  element(
    "div",
    { class: "key" },
    names.map(([name, colour]) =>
      element("span", {}, element("i", { class: "swatch", style: `background:${colour}` }), name),
    ),
  );

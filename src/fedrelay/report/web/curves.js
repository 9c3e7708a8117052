// Learning curves: any measure over any cost, with mean ± standard deviation over seeds, crosshair and legend.

const MEASURES = {
  accuracy: ["Accuracy", percent],
  f1: ["Macro F1", percent],
  loss: ["Test loss", plainNumber],
  train_loss: ["Training loss", plainNumber],
};
const COSTS = {
  round: ["Rounds", count],
  client_updates: ["Client updates", count],
  bytes: ["Traffic", bytes],
  virtual_seconds: ["Virtual time", seconds],
};

function plainNumber(value) {
  return value === null || value === undefined ? NONE : String(Number(value.toPrecision(3)));
}

function legend(page, redraw) {
  const box = element("div", { class: "legend", role: "group", "aria-label": "Methods; press to hide or show" });
  box.refresh = () => {
    box.replaceChildren(
      ...page.doc.methods.map((method, index) =>
        element(
          "button",
          {
            type: "button",
            "aria-pressed": String(!page.hidden.has(method.name)),
            onclick: () => {
              if (!page.hidden.delete(method.name)) page.hidden.add(method.name);
              redraw();
            },
          },
          shape(
            "svg",
            { width: 22, height: 10, "aria-hidden": "true" },
            shape("line", {
              x1: 1,
              x2: 21,
              y1: 5,
              y2: 5,
              stroke: methodColour(index),
              "stroke-width": 3,
              "stroke-dasharray": methodDash(index),
              "stroke-linecap": "round",
            }),
          ),
          method.name,
        ),
      ),
    );
  };
  return box;
}

function curvesSection(page) {
  const choice = { measure: "accuracy", cost: "round", vertical: false, horizontal: false, seeds: false };
  const set = (key) => (value) => {
    choice[key] = value;
    draw();
  };
  const toggle = (key, text) => {
    const button = element(
      "button",
      {
        type: "button",
        class: "plain",
        "aria-pressed": "false",
        "data-toggle": key,
        onclick: () => {
          choice[key] = !choice[key];
          button.setAttribute("aria-pressed", String(choice[key]));
          draw();
        },
      },
      text,
    );
    return button;
  };
  const names = (table) => Object.entries(table).map(([key, [text]]) => [key, text]);
  const methods = legend(page, () => page.redraw());
  const note = element("p", { class: "note" });
  const single = toggle("seeds", "single seeds");
  const frame = figure("curves", {
    controls: [
      segments("What is measured", names(MEASURES), choice.measure, set("measure")),
      segments("Over what", names(COSTS), choice.cost, set("cost")),
      toggle("horizontal", "log ↔"),
      toggle("vertical", "log ↕"),
      single,
    ],
    below: [methods, note],
  });

  function draw() {
    methods.refresh();
    note.textContent = "";
    const begun = page.doc.methods.some((method) => method.course.round.length);
    methods.hidden = !begun;
    single.hidden = !page.doc.methods.some((method) => method.course.runs.length > 1);
    const shown = page.doc.methods
      .map((method, index) => ({ method, index }))
      .filter(({ method }) => method.course.round.length && !page.hidden.has(method.name));
    if (!begun) return frame.empty(failures(page.doc) || "No round has been evaluated yet.");
    if (!shown.length) return frame.empty("All methods are hidden; press one below to show it.");
    const lines = shown.map(({ method, index }) => line(method, index));
    const points = lines.flatMap((each) => each.points);
    if (!points.length)
      return frame.empty(
        choice.horizontal
          ? "Nothing here is above 0, so there is no logarithmic axis."
          : "There is nothing to draw for this choice.",
        true,
      );
    frame.show(plot(lines, points), () => sheet(shown));
    const thinned = shown.filter(({ method }) => method.course.evaluated > method.course.round.length);
    const seeds = Math.max(...shown.map(({ method }) => Math.max(...method.course.seeds)));
    const alike = shown.every(({ method }) => method.course.runs.length === seeds);
    const uneven = shown.some(({ method }) => Math.min(...method.course.seeds) < Math.max(...method.course.seeds));
    note.textContent = [
      seeds > 1
        ? `Lines are means over ${alike ? "" : "up to "}${seeds} seeds, bands one standard deviation.`
        : "One seed, so there are no bands.",
      uneven ? "Some seeds are further than others; a mean is over those that have got there." : "",
      thinned.length
        ? `Of ${count(thinned[0].method.course.evaluated)} evaluations ${count(thinned[0].method.course.round.length)}, evenly chosen, are drawn.`
        : "",
      page.doc.reference && choice.measure === "accuracy"
        ? `Dashed: ${page.doc.reference.name}, ${percent(page.doc.reference.accuracy)}.`
        : "",
    ].join(" ");
  }

  const visible = (x, y) => x !== null && y !== null && (!choice.horizontal || x > 0) && (!choice.vertical || y > 0);

  function line(method, index) {
    const { course } = method;
    const { mean, std } = course[choice.measure];
    const points = course[choice.cost]
      .map((x, each) => ({ x, y: mean[each], std: std[each], round: course.round[each], seeds: course.seeds[each] }))
      .filter(({ x, y }) => visible(x, y));
    const runs =
      choice.seeds && course.runs.length > 1
        ? course.runs.map((run) =>
            run[choice.cost]
              .map((x, each) => ({ x, y: run[choice.measure][each] }))
              .filter(({ x, y }) => visible(x, y)),
          )
        : [];
    return { method, index, points, runs, banded: course.runs.length > 1 && !choice.seeds };
  }

  function plot(lines, points) {
    const [width, height] = [room(frame.plot), innerWidth < 720 ? 300 : 400];
    const [left, right, top, bottom] = [46, width - 12, 34, height - 48];
    const shares = choice.measure === "accuracy" || choice.measure === "f1";
    const low = choice.vertical ? Math.min(...points.map(({ y }) => y)) : 0;
    const high =
      shares && !choice.vertical
        ? 1
        : Math.max(...points.map(({ y, std }) => y + (lines.some((each) => each.banded) ? std || 0 : 0))) * 1.03;
    const across = points.map(({ x }) => x);
    const x = scale(
      [choice.horizontal ? Math.min(...across) : 0, Math.max(...across)],
      [left, right - 4],
      choice.horizontal,
    );
    const y = scale([low, high], [bottom, top], choice.vertical);
    const [measureName, measureText] = MEASURES[choice.measure];
    const [costName, costText] = COSTS[choice.cost];
    const svg = shape("svg", {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": `${measureName} over ${costName.toLowerCase()}`,
    });
    const yTicks = y.ticks(shares ? 5 : 6);
    axes(svg, {
      x,
      y,
      left,
      right,
      top,
      bottom,
      xTicks: x.ticks(width < 520 ? 4 : 8).filter((value) => costText !== count || Number.isInteger(value)),
      yTicks,
      xText: costText,
      yText: shares
        ? (value) =>
            percent(value, yTicks.some((each) => Math.round(each * 100) !== Math.round(each * 1e4) / 100) ? 1 : 0)
        : measureText,
      xName: costName.toLowerCase(),
      yName: measureName,
    });
    const inside = (value) => Math.min(bottom, Math.max(top, y(value)));
    if (page.doc.reference && choice.measure === "accuracy") {
      const level = y(page.doc.reference.accuracy);
      svg.append(
        shape("line", { x1: left, x2: right, y1: level, y2: level, stroke: "var(--soft)", "stroke-dasharray": "5 4" }),
      );
    }
    for (const { points: each, index, banded, runs } of lines) {
      const colour = methodColour(index);
      if (banded) {
        const edge = (side) =>
          each.map(
            (point) =>
              `${x(point.x).toFixed(1)},${inside(choice.vertical ? Math.max(low, point.y + side * point.std) : point.y + side * point.std).toFixed(1)}`,
          );
        svg.append(
          shape("path", {
            d: `M${[...edge(1), ...edge(-1).reverse()].join("L")}Z`,
            fill: colour,
            "fill-opacity": 0.16,
            class: "band",
          }),
        );
      }
      for (const run of runs)
        svg.append(
          shape("path", {
            d: `M${run.map((point) => `${x(point.x).toFixed(1)},${y(point.y).toFixed(1)}`).join("L")}`,
            fill: "none",
            stroke: colour,
            "stroke-width": 1,
            "stroke-opacity": 0.5,
          }),
        );
      svg.append(
        shape("path", {
          class: "curve",
          "data-method": lines.length,
          d: `M${each.map((point) => `${x(point.x).toFixed(1)},${y(point.y).toFixed(1)}`).join("L")}`,
          fill: "none",
          stroke: colour,
          "stroke-width": 2.4,
          "stroke-linejoin": "round",
          "stroke-dasharray": methodDash(index),
        }),
      );
      if (each.length === 1) svg.append(shape("circle", { cx: x(each[0].x), cy: y(each[0].y), r: 4, fill: colour }));
    }
    crosshair(svg, lines, { x, y, left, right, top, bottom, measureText, costText, costName });
    return svg;
  }

  function crosshair(svg, lines, { x, y, left, right, top, bottom, measureText, costText, costName }) {
    const rule = shape("line", { y1: top, y2: bottom, stroke: "var(--soft)", "stroke-width": 1, visibility: "hidden" });
    const marks = lines.map(({ index }) =>
      shape("circle", {
        r: 4.5,
        fill: methodColour(index),
        stroke: "var(--card)",
        "stroke-width": 2,
        visibility: "hidden",
      }),
    );
    const cover = shape("rect", {
      x: left,
      y: top,
      width: right - left,
      height: bottom - top,
      fill: "transparent",
      tabindex: 0,
      role: "application",
      "aria-label": "Values; arrow keys move through the rounds",
    });
    svg.append(rule, ...marks, cover);
    const places = [...new Set(lines.flatMap((each) => each.points.map((point) => point.x)))].sort(
      (one, other) => one - other,
    );
    let at = places.length - 1;
    const nearest = (points, value) =>
      points.reduce((best, point) => (Math.abs(point.x - value) < Math.abs(best.x - value) ? point : best));
    function point(value, event) {
      rule.setAttribute("x1", x(value));
      rule.setAttribute("x2", x(value));
      rule.setAttribute("visibility", "visible");
      const rows = [];
      lines.forEach(({ method, index, points }, each) => {
        if (!points.length || value > points.at(-1).x + (x.back(left + 12) - x.back(left))) {
          marks[each].setAttribute("visibility", "hidden");
          return;
        }
        const found = nearest(points, value);
        marks[each].setAttribute("cx", x(found.x));
        marks[each].setAttribute("cy", y(found.y));
        marks[each].setAttribute("visibility", "visible");
        const round = choice.cost === "round" ? "" : `  (round ${count(found.round)})`;
        rows.push([
          found.y,
          [
            method.name,
            `${measureText(found.y)}${found.seeds > 1 ? ` ± ${measureText(found.std)}` : ""}${round}`,
            methodColour(index),
          ],
        ]);
      });
      rows.sort((one, other) => other[0] - one[0]);
      showTip(
        event,
        choice.cost === "round" ? `Round ${count(value)}` : `${costName}: ${costText(value)}`,
        rows.map(([, row]) => row),
      );
    }
    const leave = () => {
      hideTip();
      for (const mark of [rule, ...marks]) mark.setAttribute("visibility", "hidden");
    };
    const spot = () => {
      const box = svg.getBoundingClientRect();
      return { clientX: box.left + x(places[at]) * (box.width / svg.viewBox.baseVal.width), clientY: box.top + 60 };
    };
    cover.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const value = x.back((event.clientX - box.left) * (svg.viewBox.baseVal.width / box.width));
      at = places.reduce(
        (best, place, index) => (Math.abs(place - value) < Math.abs(places[best] - value) ? index : best),
        0,
      );
      point(places[at], event);
    });
    cover.addEventListener("pointerleave", leave);
    cover.addEventListener("blur", leave);
    cover.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -places.length, End: places.length }[event.key];
      if (!step) return;
      event.preventDefault();
      at = Math.max(0, Math.min(places.length - 1, at + step));
      point(places[at], spot());
    });
  }

  const sheet = (shown) => [
    [
      "method",
      "seeds",
      ...Object.keys(COSTS),
      ...Object.keys(MEASURES).flatMap((name) => [`${name}_mean`, `${name}_std`]),
      "evaluations_in_all",
    ],
    ...shown.flatMap(({ method: { name, course } }) =>
      course.round.map((_, each) => [
        name,
        course.seeds[each],
        ...Object.keys(COSTS).map((key) => course[key][each]),
        ...Object.keys(MEASURES).flatMap((key) => [course[key].mean[each], course[key].std[each]]),
        course.evaluated,
      ]),
    ),
  ];

  return {
    id: "curves",
    title: "Learning curves",
    short: "Curves",
    lead: "How good the model is after so many rounds, client updates, bytes or seconds on the clients' own devices.",
    nodes: [frame.card],
    draw,
  };
}

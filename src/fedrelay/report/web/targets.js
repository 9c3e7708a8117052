// What it took to reach each target, with factors against a method of the reader's choice.

function targetsSection(page) {
  const choice = { cost: "round" };
  const baseline = chooser("compared with", draw);
  const frame = figure("targets", {
    controls: [
      segments(
        "Cost",
        Object.entries({
          round: "Rounds",
          client_updates: "Client updates",
          bytes: "Traffic",
          virtual_seconds: "Virtual time",
        }),
        choice.cost,
        (value) => {
          choice.cost = value;
          draw();
        },
      ),
      baseline.node,
    ],
  });

  const costs = (method, { place }) => method.standing.costs_to[place];
  const cost = (method, target) => costs(method, target)[choice.cost];

  function draw() {
    const { methods } = page.doc;
    const targets = page.doc.targets.map((target, place) => ({ ...target, place }));
    baseline.offer(methods.map((method, index) => [String(index), method.name]));
    baseline.node.hidden = methods.length < 2;
    const shown = methods
      .map((method, index) => ({ method, index }))
      .filter(({ method }) => !page.hidden.has(method.name));
    if (!shown.length || !targets.length) return frame.empty("There is nothing to compare.");
    const reference = methods[Number(baseline.select.value) || 0];
    const reached = targets.filter((target) => shown.some(({ method }) => costs(method, target).round !== null));
    frame.show(
      [
        ...(reached.length
          ? [chart(shown, reached, reference), table(shown, reached, reference)]
          : []),
        ...(reached.length < targets.length ? [outOfReach(shown, targets, reached)] : []),
      ],
      () => sheet(shown, targets, reference),
    );
  }

  // Targets that nobody got to, in a sentence instead of empty bars.
  function outOfReach(shown, targets, reached) {
    const missed = targets.filter((target) => !reached.includes(target)).map(({ accuracy }) => percent(accuracy));
    const heights = shown.flatMap(({ method }) => method.course.accuracy.mean).filter((mean) => mean !== null);
    const best = heights.length ? ` The highest accuracy of a method was ${percent(Math.max(...heights))}.` : "";
    return element(
      "p",
      { class: reached.length ? "note" : "empty" },
      `No method reached ${missed.join(" or ")} with every seed.${best}`,
    );
  }

  // Why there is no number.
  const missing = (method, target) =>
    costs(method, target).round === null ? method.runs.find(ended)?.status || "not reached" : "not noted";

  const factorOf = (before, now) => (before && now ? before / now : null);
  const gainText = (factor) => (factor === null ? "" : `${factor >= 10 ? factor.toFixed(0) : factor.toFixed(1)}×`);

  function chart(shown, targets, reference) {
    const width = room(frame.plot);
    const [line, gap, left, right] = [24, 38, width < 560 ? 92 : 150, width - 92];
    const text = COSTS[choice.cost][1];
    const most = Math.max(1e-9, ...shown.flatMap(({ method }) => targets.map((target) => cost(method, target) || 0)));
    const svg = shape("svg", {
      viewBox: `0 0 ${width} ${targets.length * (shown.length * line + gap)}`,
      role: "img",
      "aria-label": `${COSTS[choice.cost][0]} to each target`,
    });
    let top = 0;
    for (const target of targets) {
      const { share, accuracy } = target;
      svg.append(
        shape(
          "text",
          { x: 0, y: top + 16, "font-weight": 600 },
          `to ${percent(accuracy)}`,
          page.doc.reference
            ? shape(
                "tspan",
                { class: "soft", dx: 6, "font-weight": 400 },
                `${Math.round(share * 100)} % of the reference`,
              )
            : "",
        ),
      );
      top += 26;
      for (const { method, index } of shown) {
        const value = cost(method, target);
        const length = value === null ? 0 : Math.max(2, (value / most) * (right - left));
        const factor = method === reference ? null : factorOf(cost(reference, target), value);
        svg.append(
          shape(
            "text",
            { class: "soft", x: left - 8, y: top + 16, "text-anchor": "end" },
            clipped(method.name, width < 560 ? 12 : 20),
            shape("title", {}, method.name),
          ),
          value === null
            ? shape("text", { class: "soft", x: left, y: top + 16 }, missing(method, target))
            : shape(
                "rect",
                {
                  class: "bar-of-target",
                  x: left,
                  y: top + 3,
                  width: length,
                  height: line - 7,
                  rx: 3,
                  fill: methodColour(index),
                },
                shape("title", {}, `${method.name}: ${text(value)}`),
              ),
          value === null
            ? ""
            : shape(
                "text",
                { x: left + length + 8, y: top + 16 },
                text(value),
                factor === null
                  ? ""
                  : shape(
                      "tspan",
                      { dx: 6, style: `fill:var(${factor >= 1 ? "--good" : "--warn"})`, "font-weight": 600 },
                      gainText(factor),
                    ),
              ),
        );
        top += line;
      }
      top += gap - 26;
    }
    return svg;
  }

  function table(shown, targets, reference) {
    const text = COSTS[choice.cost][1];
    const entry = (method, target) => {
      const value = cost(method, target);
      const factor = method === reference ? null : factorOf(cost(reference, target), value);
      if (value === null) return missing(method, target);
      if (factor === null) return text(value);
      return [text(value), element("span", { class: factor >= 1 ? "gain" : "loss" }, `  ${gainText(factor)}`)];
    };
    return asTable(frame, ["Method", ...targets.map(({ accuracy }) => `to ${percent(accuracy)}`)], () =>
      shown.map(({ method, index }) => [
        [element("i", { class: "dot", style: `background:${methodColour(index)}` }), method.name],
        ...targets.map((target) => entry(method, target)),
      ]),
    );
  }

  const sheet = (shown, targets, reference) => [
    ["method", "target", ...Object.keys(COSTS), "compared_with", ...Object.keys(COSTS).map((key) => `speed_up_${key}`)],
    ...shown.flatMap(({ method }) =>
      targets.map((target) => {
        const [own, first] = [method, reference].map((each) => costs(each, target));
        return [
          method.name,
          target.accuracy,
          ...Object.keys(COSTS).map((key) => own[key]),
          reference.name,
          ...Object.keys(COSTS).map((key) => factorOf(first[key], own[key])),
        ];
      }),
    ),
  ];

  return {
    id: "targets",
    title: "How soon",
    lead: "What it took to reach each target for the first time, as a mean over seeds; a target counts when every seed got there. Coloured factors say how many times less than the method it is compared with.",
    nodes: [frame.card],
    draw,
  };
}

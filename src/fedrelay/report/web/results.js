// Numbers: what it took to reach each target, with speed-ups, and where every method ended.

function targetsSection(page) {
  const choice = { cost: "round" };
  let unfolded = false;
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

  function draw() {
    const { methods, targets } = page.doc;
    baseline.offer(methods.map((method, index) => [String(index), method.name]));
    baseline.node.hidden = methods.length < 2;
    const shown = methods
      .map((method, index) => ({ method, index }))
      .filter(({ method }) => !page.hidden.has(method.name));
    if (!shown.length || !targets.length) return frame.empty("There is nothing to compare.");
    const reference = methods[Number(baseline.select.value) || 0];
    const cost = (method, share) => {
      const found = method.standing.costs_to[String(share)];
      return found ? found[choice.cost] : null;
    };
    const reached = targets.filter(({ share }) => shown.some(({ method }) => cost(method, share) !== null));
    frame.show(
      [
        ...(reached.length
          ? [chart(shown, reached, reference, cost), table(shown, reached, reference, cost)]
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

  const unreached = (method) =>
    ["diverged", "fruitless"].find((state) => method.runs.some((run) => run.status === state)) || "not reached";

  const gain = (before, now) => (before && now ? before / now : null);
  const gainText = (factor) => (factor === null ? "" : `${factor >= 10 ? factor.toFixed(0) : factor.toFixed(1)}×`);

  function chart(shown, targets, reference, cost) {
    const width = room(frame.plot);
    const [line, gap, left, right] = [24, 38, width < 560 ? 92 : 150, width - 92];
    const text = COSTS[choice.cost][1];
    const most = Math.max(1e-9, ...shown.flatMap(({ method }) => targets.map(({ share }) => cost(method, share) || 0)));
    const svg = shape("svg", {
      viewBox: `0 0 ${width} ${targets.length * (shown.length * line + gap)}`,
      role: "img",
      "aria-label": `${COSTS[choice.cost][0]} to each target`,
    });
    let top = 0;
    for (const { share, accuracy } of targets) {
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
        const value = cost(method, share);
        const length = value === null ? 0 : Math.max(2, (value / most) * (right - left));
        const factor = method === reference ? null : gain(cost(reference, share), value);
        svg.append(
          shape(
            "text",
            { class: "soft", x: left - 8, y: top + 16, "text-anchor": "end" },
            clipped(method.name, width < 560 ? 12 : 20),
            shape("title", {}, method.name),
          ),
          value === null
            ? shape("text", { class: "soft", x: left, y: top + 16 }, unreached(method))
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

  function table(shown, targets, reference, cost) {
    const text = COSTS[choice.cost][1];
    return element(
      "details",
      { open: unfolded },
      element(
        "summary",
        {
          onclick: () => {
            unfolded = !unfolded;
          },
        },
        "as a table",
      ),
      element(
        "div",
        { class: "wide" },
        element(
          "table",
          {},
          headings(["Method", ...targets.map(({ accuracy }) => `to ${percent(accuracy)}`)]),
          element(
            "tbody",
            {},
            shown.map(({ method, index }) =>
              element(
                "tr",
                {},
                element(
                  "td",
                  {},
                  element("i", { class: "dot", style: `background:${methodColour(index)}` }),
                  method.name,
                ),
                targets.map(({ share }) => {
                  const value = cost(method, share);
                  const factor = method === reference ? null : gain(cost(reference, share), value);
                  return element(
                    "td",
                    {},
                    text(value),
                    factor === null
                      ? null
                      : element("span", { class: factor >= 1 ? "gain" : "loss" }, `  ${gainText(factor)}`),
                  );
                }),
              ),
            ),
          ),
        ),
      ),
    );
  }

  const sheet = (shown, targets, reference) => [
    ["method", "target", ...Object.keys(COSTS), ...Object.keys(COSTS).map((key) => `speed_up_${key}`)],
    ...shown.flatMap(({ method }) =>
      targets.map(({ share, accuracy }) => {
        const [own, first] = [method, reference].map((each) => each.standing.costs_to[String(share)] || {});
        return [
          method.name,
          accuracy,
          ...Object.keys(COSTS).map((key) => own[key]),
          ...Object.keys(COSTS).map((key) => gain(first[key], own[key])),
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

function resultsSection(page) {
  const frame = figure("results");
  const columns = () => [
    ["accuracy, last " + page.doc.last, "accuracy_last"],
    ["accuracy, final", "accuracy"],
  ];

  function draw() {
    const { methods } = page.doc;
    const failed = failures(page.doc);
    if (!failed && !methods.some((method) => method.course.round.length))
      return frame.empty("No run has come to a result yet.");
    const best = Math.max(
      ...methods
        .filter((method) => method.method !== "centralized")
        .map((method) => method.standing.accuracy_last.mean ?? -1),
    );
    const head = [
      "Method",
      ...columns().map(([name]) => name),
      "client updates",
      "longest chain",
      "traffic",
      "virtual time",
      "real time",
      "runs",
    ];
    frame.show(
      [
        element(
          "div",
          { class: "wide", tabindex: 0, role: "region", "aria-label": "Table of final results" },
          element(
            "table",
            {},
            headings(head),
            element(
              "tbody",
              {},
              methods.map((method, index) => row(method, index, best)),
            ),
          ),
        ),
        ...(failed ? [element("p", { class: "note loss" }, failed)] : []),
      ],
      sheet,
    );
  }

  function row(method, index, best) {
    const { standing } = method;
    const level = ({ mean, std }, strong) =>
      element(
        "td",
        {},
        mean === null ? NONE : element(strong ? "b" : "span", {}, (100 * mean).toFixed(1)),
        mean === null || method.course.runs.length < 2 ? null : element("small", {}, ` ± ${(100 * std).toFixed(1)}`),
      );
    const states = method.runs.filter((run) => run.status !== "complete");
    return element(
      "tr",
      {},
      element(
        "td",
        {},
        element("i", { class: "dot", style: `background:${methodColour(index)}` }),
        method.name,
        states.map((run) =>
          element(
            "span",
            { class: `chip ${run.status}`, title: run.why || null },
            `seed ${run.seed} ${run.status}${run.planned ? `, round ${count(run.rounds)} of ${count(run.planned)}` : ""}`,
          ),
        ),
      ),
      level(standing.accuracy_last, standing.accuracy_last.mean === best),
      level(standing.accuracy, false),
      [
        count(standing.client_updates),
        count(standing.longest_chain),
        bytes(standing.bytes),
        seconds(standing.virtual_seconds),
        seconds(standing.seconds),
        `${method.runs.filter((run) => run.status === "complete").length} of ${method.runs.length}`,
      ].map((text) => element("td", {}, text)),
    );
  }

  const sheet = () => [
    [
      "method",
      "accuracy_last_mean",
      "accuracy_last_std",
      "accuracy_mean",
      "accuracy_std",
      "client_updates",
      "longest_chain",
      "s2c",
      "c2s",
      "c2c",
      "bytes",
      "virtual_seconds",
      "seconds",
      "runs",
    ],
    ...page.doc.methods.map(({ name, standing, course }) => [
      name,
      standing.accuracy_last.mean,
      standing.accuracy_last.std,
      standing.accuracy.mean,
      standing.accuracy.std,
      standing.client_updates,
      standing.longest_chain,
      standing.transfers.s2c,
      standing.transfers.c2s,
      standing.transfers.c2c,
      standing.bytes,
      standing.virtual_seconds,
      standing.seconds,
      course.runs.length,
    ]),
  ];

  return {
    id: "results",
    title: "Where they ended",
    short: "Results",
    lead: "Test accuracy in percent, mean ± standard deviation over seeds, and what it cost. The highest level of a federated method is bold.",
    nodes: [frame.card],
    draw,
  };
}

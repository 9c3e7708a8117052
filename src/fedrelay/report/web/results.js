// Where every method ended, and what it cost.

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
    const level = best(page.doc)?.standing.accuracy_last.mean;
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
              methods.map((method, index) => row(method, index, sound(page.doc).includes(method) && method.standing.accuracy_last.mean === level)),
            ),
          ),
        ),
        ...(failed ? [element("p", { class: "note loss" }, failed)] : []),
      ],
      sheet,
    );
  }

  function row(method, index, isBest) {
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
      rowHead(
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
      level(standing.accuracy_last, isBest),
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
      "states",
    ],
    ...page.doc.methods.map(({ name, standing, course, runs }) => [
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
      runs.map((run) => run.status).join(" "),
    ]),
  ];

  return {
    id: "results",
    title: "Where they ended",
    short: "Results",
    lead: "Test accuracy in percent, mean ± standard deviation over seeds, and what it cost. The highest level of a federated method is bold, among those whose seeds all came through.",
    nodes: [frame.card],
    draw,
  };
}

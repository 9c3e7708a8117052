// Forgetting along a chain: one row for each hop, one column for each client visited before.

function forgettingSection(page) {
  const run = chooser("chain of", () => draw(true));
  const slider = element("input", {
    type: "range",
    min: 0,
    max: 0,
    value: 0,
    "aria-label": "Round",
    oninput: () => draw(),
  });
  const said = element("output", {});
  const frame = figure("forgetting", { controls: [run.node, element("div", { class: "slider" }, slider, said)] });

  function draw(fresh = false) {
    const known = page.doc.journeys
      .map((each, index) => ({ each, index }))
      .filter(({ each }) => each.forgetting.chains.some((chain) => chain.clients.length > 1));
    run.offer(
      known.map(({ each, index }) => [String(index), `${page.doc.methods[each.method].name}, seed ${each.seed}`]),
    );
    const journey = page.doc.journeys[Number(run.select.value)];
    if (!known.length || !journey)
      return frame.empty("No chain was followed. Run with --set eval.forgetting=5 to follow one every five rounds.");
    const { chains } = journey.forgetting;
    slider.max = chains.length - 1;
    if (fresh) slider.value = 0;
    const chain = chains[Number(slider.value)];
    said.textContent = `round ${count(chain.round)}`;
    frame.show(
      [
        matrix(chain),
        element(
          "p",
          { class: "note" },
          `${chain.backward_transfer === null ? "" : `Backward transfer ${(100 * chain.backward_transfer).toFixed(1)} points: ${chain.backward_transfer < 0 ? "on average so much is forgotten" : "on average later clients helped earlier ones"} by the end of the chain.`}${chains.length < journey.forgetting.in_all ? ` Of ${count(journey.forgetting.in_all)} followed chains ${count(chains.length)} are kept in this page.` : ""}`,
        ),
        asTable(frame, ["after client", ...chain.clients.map((client) => `on ${client}`)], () =>
          chain.matrix.map((row, hop) => [String(chain.clients[hop]), ...row.map((value) => percent(value))]),
        ),
      ],
      () => sheet(journey),
    );
  }

  const sheet = ({ method, seed, forgetting: { chains, in_all: all } }) => [
    ["method", "seed", "round", "hop", "trained_at", "samples_of", "accuracy", "chains_in_all"],
    ...chains.flatMap(({ round, clients, matrix: rows }) =>
      rows.flatMap((row, hop) =>
        row.map((value, index) => [
          page.doc.methods[method].name,
          seed,
          round,
          hop + 1,
          clients[hop],
          clients[index],
          value,
          all,
        ]),
      ),
    ),
  ];

  function matrix({ clients, matrix: rows }) {
    const width = room(frame.plot);
    const cell = Math.max(5, Math.min(30, (width - 96) / clients.length));
    const [left, top] = [64, 34];
    const svg = shape("svg", {
      viewBox: `0 0 ${width} ${top + cell * clients.length + 14}`,
      role: "img",
      "aria-label": "Accuracy on the samples of each client after each hop",
    });
    svg.append(
      shape("text", { class: "soft", x: left, y: 12, style: "font-size:11px" }, "on the samples of client →"),
      shape("text", { class: "soft", x: 0, y: 28, style: "font-size:11px" }, "after ↓"),
    );
    rows.forEach((row, hop) => {
      const y = top + hop * cell;
      if (cell >= 11)
        svg.append(
          shape(
            "text",
            { class: "soft", x: left - 8, y: y + cell / 2 + 4, "text-anchor": "end", style: "font-size:10.5px" },
            String(clients[hop]),
          ),
          shape(
            "text",
            {
              class: "soft",
              x: left + (hop + 0.5) * cell,
              y: top - 6,
              "text-anchor": "middle",
              style: "font-size:10.5px",
            },
            cell >= 18 ? String(clients[hop]) : "",
          ),
        );
      row.forEach((value, index) => {
        const x = left + index * cell;
        const box = shape(
          "g",
          {},
          shape("rect", {
            class: "cell",
            x,
            y,
            width: cell - 1,
            height: cell - 1,
            rx: Math.min(4, cell / 6),
            fill: shade(value),
            stroke: index === hop ? "var(--ink)" : null,
          }),
          cell >= 24
            ? shape(
                "text",
                {
                  x: x + cell / 2 - 0.5,
                  y: y + cell / 2 + 4,
                  "text-anchor": "middle",
                  style: `font-size:9.5px;pointer-events:none;fill:${readableOn(shade(value))}`,
                },
                (100 * value).toFixed(0),
              )
            : null,
        );
        box.addEventListener("pointermove", (event) =>
          showTip(event, `After hop ${hop + 1}, at client ${clients[hop]}`, [
            [`on client ${clients[index]}`, percent(value)],
            ["just trained there", percent(rows[index][index])],
            ["change since", `${(100 * (value - rows[index][index])).toFixed(1)} points`],
          ]),
        );
        box.addEventListener("pointerleave", hideTip);
        svg.append(box);
      });
    });
    return svg;
  }

  return {
    id: "forgetting",
    title: "Forgetting along a chain",
    short: "Forgetting",
    lead: "Each row is the model after one more client; each column how well it still does on the samples of a client it has visited. A column that fades downwards is forgotten.",
    nodes: [frame.card],
    draw,
  };
}

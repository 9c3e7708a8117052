// The federation: which classes each client holds, and which classes each group holds together.

function mixBars(rows, width, height, describe) {
  const classes = rows[0].counts.length;
  const bar = width / rows.length;
  const gap = bar > 6 ? Math.min(3, bar * 0.15) : 0;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Class mix, one bar each" });
  rows.forEach((row, place) => {
    const total = row.counts.reduce((sum, each) => sum + each, 0);
    const group = shape("g", { class: "mix" });
    let bottom = height - 22;
    row.counts.forEach((each, index) => {
      if (!each) return;
      const tall = ((height - 26) * each) / total;
      bottom -= tall;
      group.append(
        shape("rect", {
          x: place * bar,
          y: bottom,
          width: Math.max(0.5, bar - gap),
          height: tall,
          fill: classColour(index, classes),
        }),
      );
    });
    group.addEventListener("pointermove", (event) => showTip(event, describe(row), clientFacts(row.counts)));
    group.addEventListener("pointerleave", hideTip);
    svg.append(group);
    if (bar >= 22)
      svg.append(
        shape(
          "text",
          { class: "soft", x: place * bar + bar / 2, y: height - 6, "text-anchor": "middle", style: "font-size:10px" },
          String(row.name),
        ),
      );
  });
  return svg;
}

const mixTable = (frame, noun, rows) =>
  asTable(frame, [noun, ...rows[0].counts.map((_, each) => `class ${each}`), "samples"], () =>
    rows.map(({ counts, name }) => [
      String(name),
      ...counts.map(count),
      count(counts.reduce((sum, each) => sum + each, 0)),
    ]),
  );

function classKey(classes) {
  if (classes <= FEW_CLASSES)
    return swatches(Array.from({ length: classes }, (_, each) => [`class ${each}`, classColour(each, classes)]));
  return element("p", { class: "note" }, `${count(classes)} shades from the first class (dark) to the last (light).`);
}

function federationSection(page) {
  const which = chooser("clients of", draw);
  const grouped = chooser("groups of", draw);
  const [clients, groups] = [
    figure("federation", { controls: [which.node] }),
    figure("groups", { controls: [grouped.node] }),
  ];
  const order = (counts) =>
    counts.length <= 60
      ? counts.map((each, client) => [each, client])
      : counts
          .map((each, client) => [each, client])
          .sort(([one], [other]) => {
            const [a, b] = [one, other].map((each) => each.indexOf(Math.max(...each)));
            return a - b || Math.max(...other) - Math.max(...one);
          });

  function draw() {
    const { federations, journeys, methods } = page.doc;
    which.offer(
      federations.map((each, index) => [
        String(index),
        federations.length === 1 ? each.name : `${each.name}, ${seedsOf(index)}`,
      ]),
    );
    which.node.hidden = federations.length < 2;
    const federation = federations[Number(which.select.value || 0)];
    if (!federation) clients.empty(journeys.length ? `Not known: ${journeys[0].unknown}.` : "No run has begun yet.");
    else drawClients(federation);
    const mixed = journeys.map((each, index) => ({ each, index })).filter(({ each }) => each.mixes.length > 0);
    groups.card.hidden = !mixed.length;
    grouped.offer(mixed.map(({ each, index }) => [String(index), `${methods[each.method].name}, seed ${each.seed}`]));
    const chosen = journeys[Number(grouped.select.value)];
    if (mixed.length && chosen) drawGroups(chosen);
  }

  const seedsOf = (index) => {
    const seeds = [...new Set(page.doc.journeys.filter((each) => each.federation === index).map((each) => each.seed))];
    return `seed ${seeds.join(", ")}`;
  };

  function drawClients(federation) {
    const ordered = order(federation.counts);
    const step = Math.max(1, Math.ceil(ordered.length / 1000));
    const rows = ordered.filter((_, place) => place % step === 0).map(([counts, client]) => ({ counts, name: client }));
    const unseen = federation.clients - federation.counts.length;
    const said = [
      `${plural(federation.clients, "client")}, ${count(federation.samples)} samples, ${plural(federation.classes, "class").replace("classs", "classes")}.`,
      ordered.length > 60 ? "Clients are ordered by their most frequent class." : "",
      step > 1 ? `Every ${step}th client is drawn.` : "",
      unseen > 0 ? `${count(unseen)} more clients were not looked at.` : "",
      federation.median_cpd === null
        ? ""
        : `Median class distance of two clients (CPD): ${federation.median_cpd.toFixed(3)}.`,
    ]
      .filter(Boolean)
      .join(" ");
    clients.show(
      [
        mixBars(rows, room(clients.plot), 200, (row) => `Client ${row.name}`),
        classKey(federation.counts[0].length),
        element("p", { class: "note" }, said),
        mixTable(clients, "Client", rows),
      ],
      () => [
        ["federation", "client", "clients_in_all", ...federation.counts[0].map((_, each) => `class_${each}`)],
        ...federation.counts.map((counts, client) => [
          page.doc.federations.indexOf(federation),
          client,
          federation.clients,
          ...counts,
        ]),
      ],
    );
  }

  function drawGroups(journey) {
    const rows = journey.mixes.map(({ counts, group }) => ({ counts, name: group }));
    const balance = journey.mixes.reduce((sum, each) => sum + each.balance, 0) / rows.length;
    groups.show(
      [
        mixBars(
          rows,
          room(groups.plot),
          150,
          (row) => `Group ${row.name}: clients ${(journey.groups[row.name] || []).join(", ")}`,
        ),
        element(
          "p",
          { class: "note" },
          `${plural(journey.groups_in_all, "group")}${rows.length < journey.groups_in_all ? `, of which ${count(rows.length)} are drawn` : ""}; rarest class over most frequent class is ${balance.toFixed(2)} on average. Bars that look alike mean groups that are alike.`,
        ),
        mixTable(groups, "Group", rows),
      ],
      () => [
        ["method", "seed", "group", "clients", "groups_in_all", ...rows[0].counts.map((_, each) => `class_${each}`)],
        ...rows.map(({ counts, name }) => [
          page.doc.methods[journey.method].name,
          journey.seed,
          name,
          (journey.groups[name] || []).join(" "),
          journey.groups_in_all,
          ...counts,
        ]),
      ],
    );
  }

  return {
    id: "federation",
    title: "The federation",
    short: "Federation",
    lead: "Which classes each client holds, and which classes each group holds together.",
    nodes: [clients.card, element("div", { style: "height:1rem" }), groups.card],
    draw,
  };
}

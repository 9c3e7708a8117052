// The federation, what was forgotten, what was sent, what went wrong, and how to do it again.

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
      group.append(shape("rect", { x: place * bar, y: bottom, width: Math.max(0.5, bar - gap), height: tall, fill: classColour(index, classes) }));
    });
    group.addEventListener("pointermove", (event) => showTip(event, describe(row), clientFacts(row.counts)));
    group.addEventListener("pointerleave", hideTip);
    svg.append(group);
    if (bar >= 22) svg.append(shape("text", { class: "soft", x: place * bar + bar / 2, y: height - 6, "text-anchor": "middle", style: "font-size:10px" }, String(row.name)));
  });
  return svg;
}

function classKey(classes) {
  if (classes <= FEW_CLASSES) return element("div", { class: "key" }, Array.from({ length: classes }, (_, each) => element("span", {}, element("i", { class: "swatch", style: `background:${classColour(each, classes)}` }), `class ${each}`)));
  return element("p", { class: "note" }, `${count(classes)} shades from the first class (dark) to the last (light).`);
}

function federationSection(page) {
  const which = chooser("clients of", draw);
  const grouped = chooser("groups of", draw);
  const [clients, groups] = [figure("federation", { controls: [which.node] }), figure("groups", { controls: [grouped.node] })];
  const order = (counts) => counts.length <= 60 ? counts.map((each, client) => [each, client]) : counts.map((each, client) => [each, client]).sort(([one], [other]) => { const [a, b] = [one, other].map((each) => each.indexOf(Math.max(...each))); return a - b || Math.max(...other) - Math.max(...one); });

  function draw() {
    const { federations, journeys, methods } = page.doc;
    which.offer(federations.map((each, index) => [String(index), federations.length === 1 ? each.name : `${each.name}, ${seedsOf(index)}`]));
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

  const seedsOf = (index) => { const seeds = [...new Set(page.doc.journeys.filter((each) => each.federation === index).map((each) => each.seed))]; return `seed ${seeds.join(", ")}`; };

  function drawClients(federation) {
    const ordered = order(federation.counts);
    const step = Math.max(1, Math.ceil(ordered.length / 1000));
    const rows = ordered.filter((_, place) => place % step === 0).map(([counts, client]) => ({ counts, name: client }));
    const unseen = federation.clients - federation.counts.length;
    const said = [`${plural(federation.clients, "client")}, ${count(federation.samples)} samples, ${plural(federation.classes, "class").replace("classs", "classes")}.`,
      ordered.length > 60 ? "Clients are ordered by their most frequent class." : "", step > 1 ? `Every ${step}th client is drawn.` : "", unseen > 0 ? `${count(unseen)} more clients were not looked at.` : "",
      federation.median_cpd === null ? "" : `Median class distance of two clients (CPD): ${federation.median_cpd.toFixed(3)}.`].filter(Boolean).join(" ");
    clients.show([mixBars(rows, room(clients.plot), 200, (row) => `Client ${row.name}`), classKey(federation.counts[0].length), element("p", { class: "note" }, said)],
      () => [["client", ...federation.counts[0].map((_, each) => `class_${each}`)], ...federation.counts.map((counts, client) => [client, ...counts])]);
  }

  function drawGroups(journey) {
    const rows = journey.mixes.map(({ counts }, index) => ({ counts, name: index }));
    const balance = journey.mixes.reduce((sum, each) => sum + each.balance, 0) / rows.length;
    groups.show([mixBars(rows, room(groups.plot), 150, (row) => `Group ${row.name}: clients ${(journey.groups[row.name] || []).join(", ")}`),
      element("p", { class: "note" }, `${plural(journey.groups_in_all, "group")}${rows.length < journey.groups_in_all ? `, of which ${count(rows.length)} are drawn` : ""}; rarest class over most frequent class is ${balance.toFixed(2)} on average. Bars that look alike mean groups that are alike.`)],
    () => [["group", "clients", ...rows[0].counts.map((_, each) => `class_${each}`)], ...rows.map(({ counts, name }) => [name, (journey.groups[name] || []).join(" "), ...counts])]);
  }

  return { id: "federation", title: "The federation", lead: "Which classes each client holds, and which classes each group holds together.", nodes: [clients.card, element("div", { style: "height:1rem" }), groups.card], draw };
}

function forgettingSection(page) {
  const run = chooser("chain of", () => draw(true));
  const slider = element("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Round", oninput: () => draw() });
  const said = element("output", {});
  const frame = figure("forgetting", { controls: [run.node, element("div", { class: "slider" }, slider, said)] });

  function draw(fresh = false) {
    const known = page.doc.journeys.map((each, index) => ({ each, index })).filter(({ each }) => each.forgetting.chains.some((chain) => chain.clients.length > 1));
    run.offer(known.map(({ each, index }) => [String(index), `${page.doc.methods[each.method].name}, seed ${each.seed}`]));
    const journey = page.doc.journeys[Number(run.select.value)];
    if (!known.length || !journey) return frame.empty("No chain was followed. Run with --set eval.forgetting=5 to follow one every five rounds.");
    const { chains } = journey.forgetting;
    slider.max = chains.length - 1;
    if (fresh) slider.value = 0;
    const chain = chains[Number(slider.value)];
    said.textContent = `round ${count(chain.round)}`;
    frame.show([matrix(chain), element("p", { class: "note" }, `${chain.backward_transfer === null ? "" : `Backward transfer ${(100 * chain.backward_transfer).toFixed(1)} points: ${chain.backward_transfer < 0 ? "on average so much is forgotten" : "on average later clients helped earlier ones"} by the end of the chain.`}${chains.length < journey.forgetting.in_all ? ` Of ${count(journey.forgetting.in_all)} followed chains ${count(chains.length)} are kept in this page.` : ""}`)],
      () => [["round", "hop", "trained_at", "samples_of", "accuracy"], ...chains.flatMap((each) => each.matrix.flatMap((row, hop) => row.map((value, index) => [each.round, hop + 1, each.clients[hop], each.clients[index], value])))]);
  }

  function matrix({ clients, matrix: rows }) {
    const width = room(frame.plot);
    const cell = Math.max(5, Math.min(30, (width - 96) / clients.length));
    const [left, top] = [64, 34];
    const svg = shape("svg", { viewBox: `0 0 ${width} ${top + cell * clients.length + 14}`, role: "img", "aria-label": "Accuracy on the samples of each client after each hop" });
    svg.append(shape("text", { class: "soft", x: left, y: 12, style: "font-size:11px" }, "on the samples of client →"), shape("text", { class: "soft", x: 0, y: 28, style: "font-size:11px" }, "after ↓"));
    rows.forEach((row, hop) => {
      const y = top + hop * cell;
      if (cell >= 11) svg.append(shape("text", { class: "soft", x: left - 8, y: y + cell / 2 + 4, "text-anchor": "end", style: "font-size:10.5px" }, String(clients[hop])), shape("text", { class: "soft", x: left + (hop + 0.5) * cell, y: top - 6, "text-anchor": "middle", style: "font-size:10.5px" }, cell >= 18 ? String(clients[hop]) : ""));
      row.forEach((value, index) => {
        const x = left + index * cell;
        const box = shape("g", {}, shape("rect", { class: "cell", x, y, width: cell - 1, height: cell - 1, rx: Math.min(4, cell / 6), fill: `rgb(var(--cell))`, "fill-opacity": 0.06 + 0.94 * value, stroke: index === hop ? "var(--ink)" : null }),
          cell >= 24 ? shape("text", { x: x + cell / 2 - 0.5, y: y + cell / 2 + 4, "text-anchor": "middle", style: `font-size:9.5px;pointer-events:none;fill:var(${value > 0.55 ? "--paper" : "--ink"})` }, (100 * value).toFixed(0)) : null);
        box.addEventListener("pointermove", (event) => showTip(event, `After hop ${hop + 1}, at client ${clients[hop]}`, [[`on client ${clients[index]}`, percent(value)], ["just trained there", percent(rows[index][index])], ["change since", `${(100 * (value - rows[index][index])).toFixed(1)} points`]]));
        box.addEventListener("pointerleave", hideTip);
        svg.append(box);
      });
    });
    return svg;
  }

  return { id: "forgetting", title: "Forgetting along a chain", lead: "Each row is the model after one more client; each column how well it still does on the samples of a client it has visited. A column that fades downwards is forgotten.", nodes: [frame.card], draw };
}

function trafficSection(page) {
  const choice = { what: "transfers" };
  const KINDS = { s2c: ["server → client", "--m0"], c2s: ["client → server", "--m4"], c2c: ["client → client", "--m2"] };
  const frame = figure("communication", { controls: [segments("What is counted", [["transfers", "Transfers by kind"], ["payloads", "Bytes by what is carried"]], choice.what, (value) => { choice.what = value; draw(); })] });

  function draw() {
    const shown = page.doc.methods.filter((method) => !page.hidden.has(method.name));
    const sums = shown.map((method) => Object.values(method.traffic[choice.what]).reduce((sum, each) => sum + each, 0));
    const most = Math.max(0, ...sums);
    if (!most) return frame.empty("Nothing has travelled yet.");
    const payloads = [...new Set(shown.flatMap((method) => Object.keys(method.traffic.payloads)))];
    const parts = choice.what === "transfers" ? Object.entries(KINDS) : payloads.map((name, index) => [name, [name, `--m${index % 7}`]]);
    const text = choice.what === "transfers" ? count : bytes;
    const width = room(frame.plot);
    const [line, right] = [50, width - 84];
    const svg = shape("svg", { viewBox: `0 0 ${width} ${shown.length * line + 4}`, role: "img", "aria-label": "Communication of every method" });
    shown.forEach((method, index) => {
      let x = 0;
      svg.append(shape("text", { x: 0, y: index * line + 14 }, method.name));
      for (const [key, [name, colour]] of parts) {
        const value = method.traffic[choice.what][key] || 0;
        if (!value) continue;
        const long = (value / most) * right;
        const bar = shape("rect", { class: "traffic", x, y: index * line + 20, width: Math.max(0.5, long - 1), height: 20, rx: 3, fill: `var(${colour})` });
        bar.addEventListener("pointermove", (event) => showTip(event, method.name, [[name, text(value), `var(${colour})`], ["share", percent(value / sums[index], 0)]]));
        bar.addEventListener("pointerleave", hideTip);
        svg.append(bar);
        x += long;
      }
      svg.append(shape("text", { class: "soft", x: x + 8, y: index * line + 34 }, text(sums[index])));
    });
    frame.show([svg, element("div", { class: "key" }, parts.map(([, [name, colour]]) => element("span", {}, element("i", { class: "swatch", style: `background:var(${colour})` }), name)))],
      () => [["method", "counted", "kind", "value"], ...page.doc.methods.flatMap((method) => ["transfers", "payloads"].flatMap((what) => Object.entries(method.traffic[what]).map(([name, value]) => [method.name, what === "transfers" ? "transfers" : "bytes", name, value])))]);
  }

  return { id: "communication", title: "Communication", lead: "Everything that was sent over the whole run, profiles of clients included; means over seeds.", nodes: [frame.card], draw };
}

function faultsSection(page) {
  const frame = figure("faults");
  function draw() {
    const { events, methods } = page.doc;
    if (!events.length) return frame.empty("No faults were noted.");
    const columns = ["round", "route", "hop", "client"];
    frame.show([element("div", { class: "wide", style: "max-height:24rem;overflow:auto" }, element("table", {}, element("thead", {}, element("tr", {}, ["Method", "seed", ...columns, "what happened", "what was done"].map((name) => element("th", {}, name)))),
      element("tbody", {}, events.map((event) => element("tr", {}, element("td", {}, methods[event.method].name), element("td", {}, count(event.seed)), columns.map((name) => element("td", {}, event[name] === undefined || event[name] === null ? NONE : String(event[name]))), element("td", { class: "words" }, String(event.what ?? NONE)), element("td", { class: "words" }, String(event.done ?? NONE))))))),
    ...(page.doc.events_in_all > events.length ? [element("p", { class: "note" }, `The first ${count(events.length)} of ${count(page.doc.events_in_all)} are listed.`)] : [])],
    () => [["method", "seed", ...columns, "what", "done"], ...events.map((event) => [methods[event.method].name, event.seed, ...columns.map((name) => event[name]), event.what, event.done])]);
  }
  return { id: "faults", title: "Faults", lead: "What went wrong on the way, and what was done about it.", nodes: [frame.card], draw };
}

function againSection(page) {
  const card = element("div", { class: "card" });
  function draw() {
    const open = new Set([...card.querySelectorAll("details[open]")].map((each) => each.dataset.name));
    card.replaceChildren(...(page.doc.specs.length ? page.doc.specs.map((spec) => element("details", { "data-name": spec.name, open: open.has(spec.name) }, element("summary", {}, spec.name),
      element("p", {}, element("code", {}, spec.command), spec.own.length ? element("span", { class: "note" }, ` — started from Python with ${spec.own.join(" and ")} of its own`) : null),
      element("p", { class: "note" }, Object.entries(spec.versions).map(([name, value]) => `${name} ${value}`).join(" · ")),
      element("p", { class: "note" }, "data fingerprint ", element("code", {}, String(spec.data_fingerprint))), element("pre", { tabindex: 0 }, spec.text))) : [element("p", { class: "empty" }, "No run has begun yet.")]));
  }
  return { id: "again", title: "Do it again", lead: "The resolved experiment and the versions it ran with. The same spec and seed give the same bits, whatever the number of workers.", nodes: [card], draw };
}

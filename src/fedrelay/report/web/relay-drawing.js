// The layers of the relay map: groups, tracks, clients and the server.

function newCanvas(id, width, height) {
  const layer = () => shape("g");
  const scene = {
    id,
    width,
    height,
    nodes: new Map(),
    blobs: layer(),
    tracks: layer(),
    server: layer(),
    clients: layer(),
    labels: layer(),
    tokens: layer(),
  };
  scene.svg = shape(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img" },
    scene.blobs,
    scene.tracks,
    scene.server,
    scene.clients,
    scene.labels,
    scene.tokens,
  );
  return scene;
}

function drawBlobs(scene, found) {
  scene.blobs.replaceChildren(
    ...found.blobs.map((blob) =>
      shape(
        "g",
        {},
        shape("circle", {
          cx: blob.x,
          cy: blob.y,
          r: blob.r,
          fill: "var(--hover)",
          stroke: "var(--rule)",
          "stroke-opacity": blob.visited ? 1 : 0.5,
          "fill-opacity": blob.visited ? 1 : 0.45,
        }),
        blob.r > 24 && blob.fixed && blob.members > 2
          ? shape(
              "text",
              {
                class: "soft",
                x: blob.x,
                y: blob.y + 4,
                "text-anchor": "middle",
                style: "font-size:10px",
              },
              String(blob.number),
            )
          : null,
      ),
    ),
  );
}

function drawTracks(scene, found, stage, focus) {
  scene.tracks.replaceChildren();
  if (stage.relay === "none") return;
  if (stage.relay === "peers") return drawPeers(scene, found, stage);
  const shared = found.radii && stage.routes.some((route) => route.length > 1) && stage.routes.length > 1;
  const shown = stage.routes.slice(0, shared ? MOST_SHARED_TRACKS : MOST_TRACKS);
  scene.drawn.tracks = shown.length;
  const slots = stage.slots ? slotPlaces(found, stage) : null;
  shown.forEach((route, index) => {
    if (!route.length) return;
    const [from, to] = ends(found, stage, slots, index);
    const pieces = way(found, stage, index, from, to);
    const colour = methodColour(index);
    const track = followable(route, index, focus);
    for (const { kind, d } of pieces) {
      const dash = kind === "back" ? "4 4" : kind === "hop" && stage.relay === "server" ? "1 4" : null;
      track.append(
        shape("path", {
          d,
          fill: "none",
          stroke: colour,
          "stroke-width": shown.length > 30 ? 1.4 : 2.2,
          "stroke-dasharray": dash,
          "stroke-linecap": "round",
          "stroke-opacity": kind === "back" ? 0.75 : 1,
        }),
      );
    }
    const whole = shape("path", {
      class: "whole",
      d: pieces.map(({ d }, each) => (each ? d.replace("M", "L") : d)).join(""),
      fill: "none",
      stroke: "transparent",
      "stroke-width": 12,
      "data-colour": colour,
      "data-hops": route.length,
    });
    track.append(
      whole,
      shape("title", {}, `model ${index + 1}: ${route.slice(0, 30).join(" → ")}${route.length > 30 ? " …" : ""}`),
    );
    scene.tracks.append(track);
    // Arrow heads need the drawn path to know where it points.
    const drawn = [...track.querySelectorAll("path:not(.whole)")];
    for (const path of shared ? [...drawn.slice(0, 2), ...drawn.slice(-2)] : drawn) {
      const head = arrow(path, colour, shown.length > 30 ? 4 : 5.5);
      if (head) track.append(head);
    }
  });
}

// A model that can be followed alone, by pointer or by key.
function followable(route, index, focus) {
  const press = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    focus(index);
  };
  return shape("g", {
    class: "track",
    "data-route": index,
    tabindex: 0,
    role: "button",
    "aria-label": `Follow model ${index + 1}, ${plural(route.length, "client")}`,
    onclick: () => focus(index),
    onkeydown: press,
  });
}

function arrow(path, colour, wanted) {
  const length = path.getTotalLength();
  const size = Math.min(wanted, length / 3.2);
  if (size < 2.2) return null;
  const at = Math.min(length - 1, length * 0.55 + size);
  const [tip, before] = [path.getPointAtLength(at), path.getPointAtLength(at - 2)];
  const angle = (Math.atan2(tip.y - before.y, tip.x - before.x) * 180) / Math.PI;
  return shape("path", {
    d: `M0,0L${-2 * size},${-size}L${-1.4 * size},0L${-2 * size},${size}Z`,
    fill: colour,
    transform: `translate(${tip.x.toFixed(1)} ${tip.y.toFixed(1)}) rotate(${angle.toFixed(1)})`,
  });
}

// Where a model sets off and where it comes home: the server, or its slot beside it.
function ends(found, stage, slots, index) {
  const server = { ...found.centre, r: 27 };
  if (!slots || stage.slots[index] === null) return [server, server];
  return [slots.get(index), stage.merges ? server : slots.get(index)];
}

// Slots stand around the server, each on the side of the client its model sets off to, without covering each other.
function slotPlaces(found, stage) {
  const many = stage.routes.length;
  const distance = Math.max(50, (many * 26) / (2 * Math.PI));
  const gap = Math.min((2 * Math.PI) / many, 25 / distance);
  const wanted = stage.routes
    .map((route, index) => {
      const first = found.at.get(route[0]) || found.centre;
      return { index, angle: Math.atan2(first.y - found.centre.y, first.x - found.centre.x) };
    })
    .sort((one, other) => one.angle - other.angle);
  wanted.forEach((each, place) => {
    if (place) each.angle = Math.max(each.angle, wanted[place - 1].angle + gap);
  });
  const over = wanted.at(-1).angle + gap - (wanted[0].angle + 2 * Math.PI);
  return new Map(
    wanted.map(({ index, angle }) => [
      index,
      { ...onEllipse(found.centre, { x: distance, y: distance }, angle - Math.max(0, over)), r: 11 },
    ]),
  );
}

function drawPeers(scene, found, stage) {
  const stops = firstVisits(stage.routes)
    .slice(0, 40)
    .map((client) => found.at.get(client))
    .filter(Boolean);
  scene.drawn.tracks = stops.length;
  stops.forEach((from, index) => {
    const track = shape("g", { class: "track", "data-route": index });
    stops.forEach((to, other) => {
      if (other !== index)
        track.append(
          shape("path", {
            d: bent(from, to, 0.08),
            fill: "none",
            stroke: methodColour(index),
            "stroke-opacity": stops.length > 12 ? 0.35 : 0.7,
            "stroke-width": 1.3,
          }),
        );
    });
    scene.tracks.append(track);
  });
}

function drawServer(scene, found, stage) {
  scene.server.replaceChildren();
  const merges = stage.merges && stage.routes.some((route) => route.length);
  const { x, y } = found.centre;
  if (stage.relay === "peers") return;
  if (stage.relay === "none") {
    scene.server.append(
      shape("text", { class: "soft", x, y: y + 64, "text-anchor": "middle" }, "all data in one place"),
    );
    return;
  }
  const slots = stage.slots ? slotPlaces(found, stage) : new Map();
  slots.forEach((place, index) => {
    if (index >= MOST_TRACKS || stage.slots[index] === null) return;
    scene.server.append(
      shape(
        "g",
        { "data-slot": stage.slots[index] },
        shape("rect", {
          x: place.x - 10,
          y: place.y - 10,
          width: 20,
          height: 20,
          rx: 5,
          fill: "var(--card)",
          stroke: methodColour(index),
          "stroke-width": 2,
        }),
        shape(
          "text",
          { x: place.x, y: place.y + 4, "text-anchor": "middle", style: "font-size:11px", "font-weight": 600 },
          String(stage.slots[index]),
        ),
        shape("title", {}, `slot ${stage.slots[index]}`),
      ),
    );
  });
  scene.server.append(
    shape("circle", {
      cx: x,
      cy: y,
      r: 26,
      fill: merges ? "var(--ink)" : "var(--card)",
      stroke: "var(--ink)",
      "stroke-width": 2,
      "stroke-dasharray": merges ? null : "4 3",
    }),
    shape(
      "text",
      {
        x,
        y: y - 1,
        "text-anchor": "middle",
        "font-weight": 600,
        style: `fill:var(${merges ? "--paper" : "--ink"});font-size:11px`,
      },
      "server",
    ),
    shape(
      "text",
      {
        x,
        y: y + 12,
        "text-anchor": "middle",
        style: `fill:var(${merges ? "--paper" : "--soft"});font-size:9.5px`,
      },
      merges ? (stage.routes.length > 1 ? "merges" : "receives") : "waits",
    ),
  );
}

function drawClients(scene, found, federation, faults) {
  const hit = new Map(faults.filter((event) => event.client !== undefined).map((event) => [event.client, event]));
  for (const [client, node] of scene.nodes)
    if (!found.at.has(client)) {
      node.remove();
      scene.nodes.delete(client);
    }
  const labels = [];
  for (const [client, place] of found.at) {
    let node = scene.nodes.get(client);
    if (!node || node.pie !== place.r >= 5) {
      if (node) node.remove();
      node = clientNode(client, federation, place.r >= 5);
      scene.nodes.set(client, node);
      scene.clients.append(node);
    }
    node.style.transform = `translate(${place.x.toFixed(1)}px, ${place.y.toFixed(1)}px) scale(${(place.r / 10).toFixed(3)})`;
    node.style.opacity = place.visited ? 1 : 0.42;
    if (place.visited && place.named && place.r >= 4.5) labels.push(label(place, client));
    if (hit.has(client))
      labels.push(
        shape(
          "g",
          { class: "fault" },
          shape("circle", {
            cx: place.x,
            cy: place.y,
            r: place.r + 4,
            fill: "none",
            stroke: "var(--warn)",
            "stroke-width": 2.5,
          }),
          shape(
            "text",
            {
              x: place.x + place.r + 5,
              y: place.y - place.r - 1,
              style: "fill:var(--warn);font-size:16px",
              "font-weight": 800,
            },
            "!",
          ),
          shape(
            "title",
            {},
            `${hit.get(client).node ? `${hit.get(client).node}, ` : ""}${hit.get(client).what}: ${hit.get(client).done}`,
          ),
        ),
      );
  }
  scene.labels.replaceChildren(...labels);
}

function label(place, client) {
  const distance = place.r + 8;
  return shape(
    "text",
    {
      class: "soft halo",
      x: place.x + distance * Math.cos(place.outward),
      y: place.y + distance * Math.sin(place.outward) + 3.5,
      "text-anchor": "middle",
      style: "font-size:10px;pointer-events:none",
    },
    String(client),
  );
}

// Drawn with radius 10 and scaled, so that it can glide to another place and size.
function clientNode(client, federation, detailed) {
  const counts = federation && federation.counts[client];
  const node = shape("g", { class: "client", "data-client": client });
  node.pie = detailed;
  node.append(...mix(counts, detailed));
  node.addEventListener("pointermove", (event) => showTip(event, `Client ${client}`, clientFacts(counts)));
  node.addEventListener("pointerleave", hideTip);
  return node;
}

function clientFacts(counts) {
  if (!counts) return [["class mix", "not known"]];
  const total = counts.reduce((sum, each) => sum + each, 0);
  const ranked = counts
    .map((each, index) => [each, index])
    .filter(([each]) => each)
    .sort((one, other) => other[0] - one[0]);
  return [
    ["samples", count(total)],
    ...ranked
      .slice(0, 6)
      .map(([each, index]) => [
        `class ${index}`,
        `${count(each)} (${percent(each / total, 0)})`,
        classColour(index, counts.length),
      ]),
    ...(ranked.length > 6 ? [["other classes", count(ranked.length - 6)]] : []),
  ];
}

function mix(counts, detailed) {
  const rim = shape("circle", { r: 10, fill: "none", stroke: "var(--card)", "stroke-width": 1.5 });
  const total = counts ? counts.reduce((sum, each) => sum + each, 0) : 0;
  if (!total) return [shape("circle", { r: 10, fill: "var(--soft)" }), rim];
  const main = counts.indexOf(Math.max(...counts));
  if (!detailed || counts[main] === total)
    return [shape("circle", { r: 10, fill: classColour(main, counts.length) }), rim];
  const slices = [];
  let angle = -Math.PI / 2;
  counts.forEach((each, index) => {
    if (!each) return;
    const end = angle + (2 * Math.PI * each) / total;
    const [from, to] = [angle, end].map(
      (value) => `${(10 * Math.cos(value)).toFixed(2)},${(10 * Math.sin(value)).toFixed(2)}`,
    );
    slices.push(
      shape("path", {
        d: `M0,0L${from}A10,10 0 ${end - angle > Math.PI ? 1 : 0} 1 ${to}Z`,
        fill: classColour(index, counts.length),
      }),
    );
    angle = end;
  });
  return [...slices, rim];
}

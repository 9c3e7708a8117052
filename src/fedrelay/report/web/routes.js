// The route map: the routes of one round between clients and server, and the controls that step through rounds.

const MOST_IDLE_DOTS = 1500;
const MOST_NAMED_IDLE = 60;
const MOST_ROUTES = 150;
const MOST_SHARED_ROUTES = 12;

const onEllipse = (centre, radii, angle) => ({
  x: centre.x + radii.x * Math.cos(angle),
  y: centre.y + radii.y * Math.sin(angle),
});
const inOrder = (routes) => [...new Set(routes.flat())];
const point = ({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`;
const routeColour = (index) => colour(`route-${index % 7}`);
const towards = (from, to, distance) => {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  return { x: from.x + ((to.x - from.x) / length) * distance, y: from.y + ((to.y - from.y) / length) * distance };
};

// Places all clients: groups or routes as clusters around the server, else a ring; clients without a hop are outside.
function layout(run, round, width, height) {
  const found = { centre: { x: width / 2, y: height / 2 }, at: new Map(), clusters: [], ring: [], radii: null, unseen: 0 };
  const visited = new Set(round.routes.flat());
  const edge = { x: width / 2 - 14, y: height / 2 - 14 };
  const clusters = clustersOf(run, round);
  if (clusters) placeClusters(found, clusters, visited, edge);
  else placeRing(found, round, visited, edge, run);
  placeIdle(found, run, edge);
  return found;
}

// Fixed groups, else the routes of this round if no client is on two of them, else none.
function clustersOf(run, round) {
  const { routes } = round;
  if (run.groups.length > 1) return { fixed: true, list: run.groups.map((members) => byVisit(members, routes)) };
  const disjoint = new Set(routes.flat()).size === sum(routes.map((route) => new Set(route).size));
  const chains = routes.length > 1 && routes.some((route) => route.length > 1);
  return disjoint && chains ? { fixed: false, list: routes.map((route) => [...new Set(route)]) } : null;
}

function byVisit(members, routes) {
  const inside = new Set(members);
  const order = inOrder(routes).filter((client) => inside.has(client));
  const visited = new Set(order);
  return [...order, ...members.filter((client) => !visited.has(client))];
}

function placeClusters(found, { fixed, list }, visited, edge) {
  const all = list.map((members, index) => ({ members, index, busy: members.some((client) => visited.has(client)) }));
  const everything = !fixed || spread(found.centre, edge, all.length).r >= 20;
  const placed = everything ? all : all.filter(({ busy }) => busy);
  const margin = everything && fixed ? 0 : 26;
  const { points, r } = spread(found.centre, { x: edge.x - margin, y: edge.y - margin }, placed.length);
  placed.forEach(({ members, index, busy }, place) => {
    const middle = points[place];
    const many = members.length;
    found.clusters.push({ ...middle, r, number: index, members: many, busy, fixed });
    const toServer = Math.atan2(found.centre.y - middle.y, found.centre.x - middle.x);
    const circle = many > 1 ? r * 0.64 : 0;
    const dot = many > 1 ? Math.min(r * 0.18 + 1, 13, circle * Math.sin(Math.PI / many) * 0.68) : Math.min(13, r * 0.4);
    members.forEach((client, hop) => {
      const angle = toServer + ((hop + 0.5) * 2 * Math.PI) / many;
      found.at.set(client, {
        ...onEllipse(middle, { x: circle, y: circle }, angle),
        r: Math.max(1.6, dot), visited: visited.has(client), outward: angle, named: r >= 38,
      });
    });
  });
}

// Circles around an ellipse, as large as possible without touching each other or the server.
function spread(centre, edge, many) {
  const start = many === 2 && edge.x > edge.y ? 0 : -Math.PI / 2;
  let r = Math.min(many <= 3 ? 150 : 104, Math.min(edge.x, edge.y) * 0.6);
  let points = [];
  for (let attempt = 0; attempt < 40; attempt += 1) {
    points = evenlyAround(centre, { x: edge.x - r, y: edge.y - r }, many, start);
    const distance = (one, other) => Math.hypot(one.x - other.x, one.y - other.y);
    const nearest = many < 2 ? Infinity : Math.min(...points.map((each, place) => distance(each, points[(place + 1) % many])));
    if (nearest >= 2 * r + 6 && Math.min(...points.map((each) => distance(each, centre))) >= r + 70) break;
    r *= 0.93;
  }
  return { points, r };
}

// Points at equal distances along the ellipse; equal angles would crowd its flat sides.
function evenlyAround(centre, radii, many, start) {
  const fine = 720;
  const ring = Array.from({ length: fine + 1 }, (_, each) => onEllipse(centre, radii, start + (2 * Math.PI * each) / fine));
  const walked = [0];
  for (let each = 1; each <= fine; each += 1)
    walked.push(walked[each - 1] + Math.hypot(ring[each].x - ring[each - 1].x, ring[each].y - ring[each - 1].y));
  let at = 0;
  return Array.from({ length: many }, (_, place) => {
    while (walked[at] < (walked[fine] * place) / many) at += 1;
    return ring[at];
  });
}

function placeRing(found, round, visited, edge, run) {
  const longest = round.routes.reduce((best, route) => (route.length > best.length ? route : best), []);
  const order = longest.length > 1 ? inOrder([longest, ...round.routes]) : [...visited].sort((one, other) => one - other);
  const share = visited.size >= run.clients ? 0.9 : 0.72;
  found.radii = { x: Math.min(edge.x * share - 16, edge.y * share * 1.75), y: edge.y * share - 16 };
  found.ring = order;
  const around = Math.PI * (found.radii.x + found.radii.y);
  order.forEach((client, place) => {
    const angle = -Math.PI / 2 + (2 * Math.PI * place) / order.length;
    const r = Math.max(1.6, Math.min(13, (around / order.length) * 0.36));
    found.at.set(client, { ...onEllipse(found.centre, found.radii, angle), r, visited: true, outward: angle, angle, named: true });
  });
}

function placeIdle(found, run, edge) {
  const idle = [];
  for (let client = 0; client < run.clients && idle.length < MOST_IDLE_DOTS; client += 1)
    if (!found.at.has(client)) idle.push(client);
  found.unseen = run.clients - found.at.size - idle.length;
  const perRow = Math.max(24, Math.floor((Math.PI * (edge.x + edge.y)) / 9));
  const rows = Math.ceil(idle.length / perRow);
  idle.forEach((client, place) => {
    const row = Math.floor(place / perRow);
    const inRow = Math.min(perRow, idle.length - row * perRow);
    const angle = -Math.PI / 2 + (2 * Math.PI * (place - row * perRow + (row % 2) / 2)) / inRow;
    const inset = Math.min(7, 40 / rows) * row;
    const where = onEllipse(found.centre, { x: edge.x - inset + 6, y: edge.y - inset + 6 }, angle);
    const few = idle.length <= MOST_NAMED_IDLE;
    const r = few ? 6 : rows > 1 || idle.length > 120 ? 2.4 : 4;
    found.at.set(client, { ...where, r, visited: false, outward: angle + Math.PI, named: few });
  });
}

// The path of one model: from its start over its hops to its end.
function routePieces(found, round, index, from, to) {
  const hops = round.routes[index].map((client) => found.at.get(client)).filter(Boolean);
  if (!hops.length) return [];
  const shared = found.radii && round.routes.length > 1 && round.routes.some((route) => route.length > 1);
  const many = Math.min(round.routes.length, MOST_SHARED_ROUTES);
  const lane = shared ? (index - (many - 1) / 2) * Math.min(4.5, 30 / many) : 0;
  const bend = hops.length === 1 ? 0.09 : 0.04;
  return [
    { kind: "out", d: curve(from, hops[0], bend) },
    ...hops.slice(1).map((hop, place) => ({ kind: "hop", d: hopPath(found, hops[place], hop, lane) })),
    { kind: "back", d: curve(hops.at(-1), to, bend) },
  ];
}

// From rim to rim, a little to the right of the straight line, so that both directions stay apart.
function curve(from, to, bend) {
  const [start, end] = [towards(from, to, from.r || 0), towards(to, from, (to.r || 0) + 2)];
  const middle = {
    x: (start.x + end.x) / 2 - (end.y - start.y) * bend,
    y: (start.y + end.y) / 2 + (end.x - start.x) * bend,
  };
  return `M${point(start)}Q${point(middle)} ${point(end)}`;
}

// Neighbours on the ring are connected along it, all others by a curve.
function hopPath(found, from, to, lane) {
  const onRing = found.radii && from.angle !== undefined && to.angle !== undefined;
  const step = onRing ? (to.angle - from.angle + 4 * Math.PI) % (2 * Math.PI) : 0;
  if (!onRing || found.ring.length < 3 || step > (2 * Math.PI) / found.ring.length + 0.01) return curve(from, to, 0.06);
  const radii = { x: found.radii.x + lane, y: found.radii.y + lane };
  const inset = lane ? 0 : Math.min(step * 0.3, (from.r + 2) / Math.min(radii.x, radii.y));
  const pieces = Math.max(2, Math.ceil(step * 16));
  const points = Array.from({ length: pieces + 1 }, (_, each) =>
    point(onEllipse(found.centre, radii, from.angle + inset + ((step - 2 * inset) * each) / pieces)),
  );
  return `M${points.join("L")}`;
}

// Slots are around the server, each on the side of its first client, without covering each other.
function slotPlaces(found, { routes }) {
  const distance = Math.max(50, (routes.length * 26) / (2 * Math.PI));
  const gap = Math.min((2 * Math.PI) / routes.length, 25 / distance);
  const wanted = routes
    .map((route, index) => {
      const first = found.at.get(route[0]) || found.centre;
      return { index, angle: Math.atan2(first.y - found.centre.y, first.x - found.centre.x) };
    })
    .sort((one, other) => one.angle - other.angle);
  wanted.forEach((each, place) => {
    if (place) each.angle = Math.max(each.angle, wanted[place - 1].angle + gap);
  });
  const over = Math.max(0, wanted.at(-1).angle + gap - (wanted[0].angle + 2 * Math.PI));
  const place = (angle) => ({ ...onEllipse(found.centre, { x: distance, y: distance }, angle - over), r: 11 });
  return new Map(wanted.map(({ index, angle }) => [index, place(angle)]));
}

// The drawing of one run. Client dots stay the same nodes, so that they glide when the round changes.
class RouteMap {
  constructor(width, height, parts, names) {
    Object.assign(this, { width, height, parts, nodes: new Map() });
    this.named = (client) => String(names[client] ?? client);
    this.layers = Object.fromEntries(
      ["clusters", "tracks", "server", "clients", "labels", "tokens"].map((name) => [name, shape("g")]),
    );
    this.svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" }, ...Object.values(this.layers));
  }

  draw(run, round, counts) {
    const found = layout(run, round, this.width, this.height);
    this.drawn = { unseen: found.unseen, tracks: 0 };
    this.fit(found);
    this.drawClusters(found);
    this.drawTracks(found, round);
    this.drawClients(found, counts, round.faults || []);
    this.drawServer(found, round);
    this.layers.tokens.replaceChildren();
  }

  // As tall as the drawing; it never shrinks while rounds change, so that the page does not jump.
  fit(found) {
    const places = [...found.at.values()].map(({ y, r }) => ({ y, r: r + 20 }));
    const all = [...places, ...found.clusters, { y: found.centre.y, r: 78 }];
    const least = all.reduce((low, { y, r }) => Math.min(low, y - r), Infinity) - 4;
    const most = all.reduce((high, { y, r }) => Math.max(high, y + r), 0) + 4;
    this.top = Math.min(this.top ?? Infinity, least);
    this.bottom = Math.max(this.bottom ?? 0, most);
    this.svg.setAttribute("viewBox", `0 ${this.top.toFixed(1)} ${this.width} ${(this.bottom - this.top).toFixed(1)}`);
  }

  drawClusters({ clusters }) {
    this.layers.clusters.replaceChildren(
      ...clusters.map(({ x, y, r, busy, fixed, members, number }) =>
        shape(
          "g",
          { opacity: busy ? 1 : 0.5 },
          shape("circle", { cx: x, cy: y, r, fill: "var(--hover)", stroke: "var(--rule)" }),
          r > 24 && fixed && members > 2
            ? label(String(number), x, y + 4, { "text-anchor": "middle", style: "font-size:10px" })
            : null,
        ),
      ),
    );
  }

  drawTracks(found, round) {
    this.layers.tracks.replaceChildren();
    if (round.handover === "none") return;
    if (round.handover === "peers") {
      this.drawPeers(found, round);
      return;
    }
    const shared = found.radii && round.routes.some((route) => route.length > 1) && round.routes.length > 1;
    const shown = round.routes.slice(0, shared ? MOST_SHARED_ROUTES : MOST_ROUTES);
    this.drawn.tracks = shown.length;
    const slots = round.slots ? slotPlaces(found, round) : null;
    const server = { ...found.centre, r: 27 };
    const many = shown.length > 30;
    shown.forEach((route, index) => {
      if (!route.length) return;
      const start = slots && round.slots[index] !== null ? slots.get(index) : server;
      const pieces = routePieces(found, round, index, start, round.merges ? server : start);
      const stroke = routeColour(index);
      const track = highlightable(index, `route ${index + 1}`);
      const paths = pieces.map(({ kind, d }) =>
        shape("path", {
          d, stroke, fill: "none", "stroke-width": many ? 1.4 : 2.2, "stroke-linecap": "round",
          "stroke-dasharray": kind === "back" ? "4 4" : kind === "hop" && round.handover === "server" ? "1 4" : null,
          "stroke-opacity": kind === "back" ? 0.75 : 1,
        }),
      );
      const whole = shape("path", {
        class: "whole", d: pieces.map(({ d }, each) => (each ? d.replace("M", "L") : d)).join(""), fill: "none",
        stroke: "transparent", "stroke-width": 12, "data-hops": route.length,
      });
      whole.dataset.colour = stroke;
      const title = `route ${index + 1}: ${route.slice(0, 30).map(this.named).join(" → ")}${route.length > 30 ? " …" : ""}`;
      track.append(...paths, whole, shape("title", {}, title));
      this.layers.tracks.append(track);
      for (const path of shared ? [...paths.slice(0, 2), ...paths.slice(-2)] : paths)
        track.append(...arrow(path, stroke, many ? 4 : 5.5)); // measures the path, which must be in the page
    });
  }

  drawPeers(found, round) {
    const places = inOrder(round.routes)
      .slice(0, 40)
      .map((client) => found.at.get(client))
      .filter(Boolean);
    this.drawn.tracks = places.length;
    const look = { fill: "none", "stroke-width": 1.3, "stroke-opacity": places.length > 12 ? 0.35 : 0.7 };
    places.forEach((from, index) => {
      const others = places.filter((to) => to !== from);
      const paths = others.map((to) => shape("path", { d: curve(from, to, 0.08), stroke: routeColour(index), ...look }));
      this.layers.tracks.append(shape("g", { class: "track", "data-route": index }, paths));
    });
  }

  drawServer(found, round) {
    const { x, y } = found.centre;
    this.layers.server.replaceChildren();
    if (round.handover === "peers") return;
    if (round.handover === "none") {
      this.layers.server.append(label("all data in one place", x, y + 64, { "text-anchor": "middle" }));
      return;
    }
    const middle = { "text-anchor": "middle", "font-weight": 600 };
    for (const [index, place] of round.slots ? slotPlaces(found, round) : []) {
      if (index >= MOST_ROUTES || round.slots[index] === null) continue;
      const box = { x: place.x - 10, y: place.y - 10, width: 20, height: 20, rx: 5, fill: "var(--card)" };
      this.layers.server.append(
        shape(
          "g",
          { "data-slot": round.slots[index] },
          shape("rect", { ...box, stroke: routeColour(index), "stroke-width": 2 }),
          shape("text", { x: place.x, y: place.y + 4, ...middle, style: "font-size:11px" }, String(round.slots[index])),
          shape("title", {}, `slot ${round.slots[index]}`),
        ),
      );
    }
    const merges = round.merges && round.routes.some((route) => route.length);
    const [ink, second] = merges ? ["--paper", "--paper"] : ["--ink", "--soft"];
    const action = merges ? (round.routes.length > 1 ? "merges" : "receives") : "waits";
    this.layers.server.append(
      shape("circle", {
        cx: x, cy: y, r: 26, fill: merges ? "var(--ink)" : "var(--card)", stroke: "var(--ink)", "stroke-width": 2,
        "stroke-dasharray": merges ? null : "4 3",
      }),
      shape("text", { x, y: y - 1, ...middle, style: `fill:var(${ink});font-size:11px` }, "server"),
      shape("text", { x, y: y + 12, "text-anchor": "middle", style: `fill:var(${second});font-size:9.5px` }, action),
    );
  }

  drawClients(found, counts, faults) {
    for (const [client, node] of this.nodes)
      if (!found.at.has(client)) {
        node.remove();
        this.nodes.delete(client);
      }
    const labels = [];
    const hit = new Map(faults.filter((event) => event.client !== undefined).map((event) => [event.client, event]));
    for (const [client, place] of found.at) {
      const detailed = place.r >= 5;
      let node = this.nodes.get(client);
      if (!node || node.detailed !== detailed) {
        node?.remove();
        node = this.client(client, counts?.[client], detailed);
        this.nodes.set(client, node);
        this.layers.clients.append(node);
      }
      const where = `translate(${place.x.toFixed(1)}px, ${place.y.toFixed(1)}px)`;
      node.style.transform = `${where} scale(${(place.r / 10).toFixed(3)})`;
      node.style.opacity = place.visited ? 1 : 0.55;
      if (place.named && place.r >= 4.5) {
        const text = clip(this.named(client), 12);
        const away = place.r + 5 + 2.8 * text.length;
        const where = onEllipse(place, { x: away, y: place.r + 8 }, place.outward);
        const style = "font-size:10px;pointer-events:none";
        labels.push(label(text, where.x, where.y + 3.5, { class: "soft halo", "text-anchor": "middle", style }));
      }
      const fault = hit.get(client);
      if (fault) labels.push(faultMark(place, fault));
    }
    this.layers.labels.replaceChildren(...labels);
  }

  // Drawn with radius 10 and scaled.
  client(client, counts, detailed) {
    const node = shape("g", { class: "client", "data-client": client }, pie(counts, this.parts, detailed));
    node.detailed = detailed;
    return withTip(node, `Client ${this.named(client)}`, () => partRows(counts, this.parts));
  }

  // Moves one dot per model along its route, then calls `done`.
  travel(done) {
    const began = performance.now();
    const models = [...this.layers.tracks.querySelectorAll("path.whole")].slice(0, 60).map((path) => ({
      path,
      length: path.getTotalLength(),
      token: shape("circle", { class: "token", r: 5.5, fill: path.dataset.colour, stroke: "var(--card)", "stroke-width": 2 }),
    }));
    this.layers.tokens.replaceChildren(...models.map(({ token }) => token));
    const lasts = Math.min(4200, 900 + 140 * Math.max(1, ...models.map(({ path }) => Number(path.dataset.hops))));
    const move = (now) => {
      const share = Math.min(1, (now - began - 350) / lasts);
      for (const { path, length, token } of models) {
        const { x, y } = path.getPointAtLength(Math.max(0, share) * length);
        token.setAttribute("cx", x);
        token.setAttribute("cy", y);
      }
      if (share < 1) this.request = requestAnimationFrame(move);
      else setTimeout(done, 250);
    };
    this.request = requestAnimationFrame(move);
  }

  halt() {
    cancelAnimationFrame(this.request);
    this.layers.tokens.replaceChildren();
  }
}

function faultMark({ x, y, r }, { node, what, done }) {
  return shape(
    "g",
    {},
    shape("circle", { cx: x, cy: y, r: r + 4, fill: "none", stroke: "var(--warn)", "stroke-width": 2.5 }),
    shape("text", { class: "fault", x: x + r + 5, y: y - r - 1 }, "!"),
    shape("title", {}, `${node ? `${node}, ` : ""}${what}: ${done}`),
  );
}

function arrow(path, fillColour, wanted) {
  const length = path.getTotalLength();
  const size = Math.min(wanted, length / 3.2);
  if (size < 2.2) return [];
  const at = Math.min(length - 1, length * 0.55 + size);
  const [end, before] = [path.getPointAtLength(at), path.getPointAtLength(at - 2)];
  const angle = (Math.atan2(end.y - before.y, end.x - before.x) * 180) / Math.PI;
  const transform = `translate(${end.x.toFixed(1)} ${end.y.toFixed(1)}) rotate(${angle.toFixed(1)})`;
  return [shape("path", { d: `M0,0L${-2 * size},${-size}L${-1.4 * size},0L${-2 * size},${size}Z`, fill: fillColour, transform })];
}

function pie(counts, parts, detailed) {
  const rim = shape("circle", { r: 10, fill: "none", stroke: "var(--card)", "stroke-width": 1.5 });
  const total = counts ? sum(counts) : 0;
  if (!total) return [shape("circle", { r: 10, fill: "var(--soft)" }), rim];
  const main = counts.indexOf(Math.max(...counts));
  if (!detailed || counts[main] === total) return [shape("circle", { r: 10, fill: colour(parts[main].colour) }), rim];
  let angle = -Math.PI / 2;
  const slices = byColour(counts, parts).map(([role, each]) => {
    const end = angle + (2 * Math.PI * each) / total;
    const [from, to] = [angle, end].map((value) => `${(10 * Math.cos(value)).toFixed(2)},${(10 * Math.sin(value)).toFixed(2)}`);
    const d = `M0,0L${from}A10,10 0 ${end - angle > Math.PI ? 1 : 0} 1 ${to}Z`;
    angle = end;
    return shape("path", { d, fill: colour(role) });
  });
  return [...slices, rim];
}

const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// The card of the route map: a run, a view and a round, which can be played.
class RouteMapCard extends Card {
  constructor(page, name) {
    super(page, name);
    Object.assign(this, { view: "map", place: 0, playing: false, plays: 0, map: null });
    this.caption = element("p", { class: "caption", "aria-live": "polite" });
    this.node.insertBefore(this.caption, this.plot);
    this.play = element("button", { type: "button", class: "play", onclick: () => (this.playing ? this.stop() : this.start()) });
  }

  get run() {
    return this.page.doc.runs[Number(this.chosen.run)];
  }

  update(value = this.value) {
    this.value = value;
    if (!Object.keys(value.figures).length) {
      this.map = null;
      this.caption.textContent = "";
      super.update(value);
      return;
    }
    const known = value.choices[0].options.some(([key]) => key === this.chosen.run);
    if (!known) this.choose(value.start);
    const last = this.run.rounds.length - 1;
    if (this.following && !this.playing) this.place = last;
    this.place = Math.min(this.place, last);
    this.following = this.page.served && this.place === last;
    const round = this.run.rounds[this.place];
    this.caption.textContent = round.caption;
    this.drawRelayControls();
    if (this.view === "map") this.drawMap(round);
    else this.plot.replaceChildren(drawFigure(value.figures[`${this.chosen.run}/${this.place}`], { width: this.width, doc: this.page.doc }));
    this.below.replaceChildren(this.key(round), element("p", { class: "note" }, this.note(round)));
    this.tools.hidden = false;
    this.tools.firstChild.hidden = false;
    this.node.hidden = false;
  }

  key(round) {
    if (!round) return super.key();
    const line = (dash, text) => element("span", {}, lineSample("currentColor", dash), text);
    const travels = round.handover === "direct" || round.handover === "server";
    const lines = round.handover === "peers" ? [line("", "models between clients")] : [];
    if (travels && this.view === "map")
      lines.push(line("", "to clients"), line("4 4", round.merges ? "back to the server" : "back to its slot"));
    if (round.handover === "server" && round.routes.some((route) => route.length > 1)) lines.push(line("1 4", "through the server"));
    const fault = round.faults ? [element("span", { class: "loss" }, "! fault event")] : [];
    if (this.view === "map" && round.handover !== "none" && new Set(round.routes.flat()).size < this.run.clients)
      lines.push(element("span", {}, element("i", { class: "dot idle" }), "pale: no hop in this round"));
    if (this.view === "routes" && round.faults) lines.push(line("2 3", "left out"));
    const parts = this.run.federation === null ? [] : this.page.doc.federations[this.run.federation].parts;
    const classes = this.view === "map" && parts.length <= 10 ? [...keyOf(parts).children] : [];
    return element("div", { class: "key" }, lines, fault, classes);
  }

  choose(run) {
    this.chosen.run = run;
    this.map = null;
    this.place = this.page.served ? this.page.doc.runs[Number(run)].rounds.length - 1 : 0;
  }

  drawRelayControls() {
    const { rounds } = this.run;
    const pick = (run) => {
      this.stop();
      this.choose(run);
      this.update();
    };
    const change = (view) => {
      this.view = view;
      this.update();
    };
    const views = { label: "View", options: [["map", "Map"], ["routes", "List of routes"]] };
    const step = (place) => {
      this.stop();
      this.place = Number(place);
      this.following = false;
      this.update();
    };
    const last = rounds.at(-1).round;
    const options = rounds.map(({ round }, place) => [String(place), `round ${count(round)} of ${count(last)}`]);
    const bar = slider({ label: "Round", options }, String(this.place), step);
    const [input] = bar.children;
    if (this.input?.isConnected && document.activeElement === this.input) {
      this.input.max = input.max; // the slider in use stays the same node
      bar.lastChild.textContent = options[this.place][1];
      this.bar.lastChild.textContent = options[this.place][1];
      this.input.value = this.place;
      return;
    }
    [this.bar, this.input] = [bar, input];
    this.play.textContent = this.playing ? "❚❚" : "▶";
    this.play.setAttribute("aria-label", this.playing ? "Pause" : "Play the rounds");
    bar.prepend(this.play);
    this.controls.hidden = false;
    this.controls.replaceChildren(
      dropdown(this.value.choices[0], this.chosen.run, pick), segments(views, this.view, change), bar,
    );
  }

  drawMap(round) {
    const { width } = this;
    const height = Math.round(width < 560 ? width * 1.15 : Math.min(660, width * 0.62));
    const federation = this.run.federation === null ? null : this.page.doc.federations[this.run.federation];
    if (!this.map || this.map.width !== width) this.map = new RouteMap(width, height, federation?.parts || [], this.run.names);
    this.map.svg.setAttribute("aria-label", round.caption);
    if (!this.map.svg.isConnected) this.plot.replaceChildren(this.map.svg);
    this.map.draw(this.run, round, federation?.counts);
  }

  note(round) {
    const drawn = this.view === "map" ? this.map.drawn : null;
    const faults = sum(Object.values(round.fault_counts || {}));
    const marked = round.faults?.length || 0;
    const classes = this.run.federation === null ? 0 : this.page.doc.federations[this.run.federation].parts.length;
    return [
      this.value.notes[this.chosen.run],
      this.view === "map" && classes > 10 ? `${this.value.shades}.` : "",
      round.more_routes ? `${count(round.more_routes)} more routes of this round are not in this page.` : "",
      marked < faults ? `The first ${count(marked)} of ${count(faults)} fault events are marked.` : "",
      drawn && round.handover !== "none" && drawn.tracks < round.routes.length
        ? `${count(drawn.tracks)} of ${count(round.routes.length)} routes are drawn; the list shows more.`
        : "",
      drawn?.unseen > 0 ? `${count(drawn.unseen)} more clients without a hop are not drawn.` : "",
    ]
      .filter(Boolean)
      .join(" ");
  }

  start() {
    if (this.place >= this.run.rounds.length - 1) this.place = 0;
    this.playing = true;
    this.plays += 1;
    this.update();
    this.next(this.plays);
  }

  stop() {
    if (!this.playing) return;
    this.playing = false;
    this.map?.halt();
    this.update();
  }

  // A later start makes an earlier one end.
  next(own) {
    const advance = () => {
      if (!this.playing || own !== this.plays) return;
      if (this.place >= this.run.rounds.length - 1) {
        this.stop();
        return;
      }
      this.place += 1;
      this.update();
      this.next(own);
    };
    if (this.view === "map" && !calm()) this.map.travel(advance);
    else setTimeout(advance, 900);
  }

  // One row per hop of all runs; the same columns as routes.csv.
  rows() {
    const { doc } = this.page;
    const heads = ["method", "seed", "round", "route", "hop", "client", "name", "handover", "slot", "merges", "rounds_in_all", "routes_in_all", "hops_in_all"];
    const rows = doc.runs.flatMap((run) =>
      run.rounds.flatMap((round) =>
        round.routes.flatMap((route, index) =>
          route.map((client, hop) => [
            doc.methods[run.method].name, run.seed, round.round, index, hop + 1, client, run.names?.[client] ?? "", round.handover,
            round.slots ? round.slots[index] : null, round.merges, run.rounds_in_all,
            round.routes.length + (round.more_routes || 0), round.lengths ? round.lengths[index] : route.length,
          ]),
        ),
      ),
    );
    return [heads, ...rows];
  }
}

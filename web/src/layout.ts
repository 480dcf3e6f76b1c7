// A layered drawing of a plan, left to right. Order within a layer by medians of neighbours, places by least squares
// that keep order and distance. Tasks that were there before keep their order: a plan that grows does not jump.

export type LayoutTask = { id: string; needs: string[] };
export type Place = { x: number; y: number; layer: number };
export type Link = { from: string; to: string; points: [number, number][] };
export type Layout = { places: Map<string, Place>; links: Link[]; width: number; height: number };
type Size = { width: number; height: number; gapX: number; gapY: number };
type Node = { layer: number; order: number; y: number; up: Node[]; down: Node[]; isBend: boolean; old?: number };

export function layersOf(tasks: LayoutTask[]): Map<string, number> {
  const layers = new Map<string, number>();
  const needs = new Map(tasks.map((task) => [task.id, task.needs]));
  const layerOf = (id: string, depth: number): number => {
    const known = layers.get(id);
    if (known !== undefined) return known;
    layers.set(id, 0); // a task in a circle is drawn all the same
    const inputs = (needs.get(id) ?? []).filter((name) => needs.has(name));
    const layer = depth > tasks.length ? 0 : Math.max(-1, ...inputs.map((name) => layerOf(name, depth + 1))) + 1;
    layers.set(id, layer);
    return layer;
  };
  for (const task of tasks) layerOf(task.id, 0);
  return layers;
}

export function layoutPlan(tasks: LayoutTask[], size: Size, before?: Layout): Layout {
  const depths = layersOf(tasks);
  const nodes = new Map<string, Node>();
  const layers: Node[][] = [];
  const put = (layer: number, node: Node): Node => {
    (layers[layer] ??= []).push(node);
    return node;
  };
  for (const { id } of tasks) {
    const layer = depths.get(id)!;
    const node = { layer, order: 0, y: 0, up: [], down: [], isBend: false, old: before?.places.get(id)?.y };
    nodes.set(id, put(layer, node));
  }
  const chains: { from: string; to: string; bends: Node[] }[] = [];
  for (const { id, needs } of tasks) {
    for (const from of new Set(needs)) {
      const start = nodes.get(from);
      const end = nodes.get(id)!;
      if (!start || start.layer >= end.layer) continue;
      let last = start;
      const bends: Node[] = [];
      for (let layer = start.layer + 1; layer < end.layer; layer += 1) {
        const bend = put(layer, { layer, order: 0, y: 0, up: [last], down: [], isBend: true });
        last.down.push(bend);
        bends.push(bend);
        last = bend;
      }
      last.down.push(end);
      end.up.push(last);
      chains.push({ from, to: id, bends });
    }
  }
  orderLayers(layers, before !== undefined);
  placeLayers(layers, size);
  return drawn(nodes, chains, layers.length, size);
}

function orderLayers(layers: Node[][], keepOld: boolean): void {
  for (const layer of layers) number(layer);
  let fewest = Infinity;
  let best = layers.map((layer) => [...layer]);
  for (let sweep = 0; sweep < 12 && fewest > 0; sweep += 1) {
    const side = sweep % 2 ? "down" : "up";
    for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
      const wanted = new Map(layer.map((node) => [node, average(node[side], node.order, (other) => other.order)]));
      layer.sort((a, b) => wanted.get(a)! - wanted.get(b)! || a.order - b.order);
      if (keepOld) restoreOld(layer);
      number(layer);
    }
    const crossings = countCrossings(layers);
    if (crossings < fewest) {
      fewest = crossings;
      best = layers.map((layer) => [...layer]);
    }
  }
  best.forEach((layer, index) => { layers[index] = layer; number(layer); });
}

const number = (layer: Node[]): void => layer.forEach((node, index) => { node.order = index; });

function average(nodes: Node[], otherwise: number, value: (node: Node) => number): number {
  return nodes.length ? nodes.reduce((sum, node) => sum + value(node), 0) / nodes.length : otherwise;
}

/** Those that were there before stand in their old order, in the slots that they have among them. */
function restoreOld(layer: Node[]): void {
  const slots = layer.flatMap((node, index) => (node.old === undefined ? [] : index));
  const known = slots.map((slot) => layer[slot]!).sort((a, b) => a.old! - b.old!);
  slots.forEach((slot, index) => { layer[slot] = known[index]!; });
}

function countCrossings(layers: Node[][]): number {
  let crossings = 0;
  for (const layer of layers) {
    const ends = layer.flatMap((node) => node.up.map((other) => other.order).sort((a, b) => a - b));
    const tree = new Int32Array(Math.max(0, ...ends) + 2);
    for (let at = ends.length - 1; at >= 0; at -= 1) {
      for (let place = ends[at]!; place > 0; place -= place & -place) crossings += tree[place]!;
      for (let place = ends[at]! + 1; place < tree.length; place += place & -place) tree[place]! += 1;
    }
  }
  return crossings;
}

function placeLayers(layers: Node[][], size: Size): void {
  const heightOf = (node: Node): number => (node.isBend ? size.gapY : size.height + size.gapY);
  for (const layer of layers) {
    let y = 0;
    for (const node of layer) {
      node.y = y + heightOf(node) / 2;
      y += heightOf(node);
    }
  }
  for (let sweep = 0; sweep < 8; sweep += 1) {
    for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
      const side = sweep % 2 ? "down" : "up";
      const wanted = layer.map((node) => {
        const near = node[side].length ? node[side] : [...node.up, ...node.down];
        return average(near, node.y, (other) => other.y);
      });
      pool(layer, wanted, heightOf);
    }
  }
}

/** Least squares under "keep your order and your distance": pool adjacent violators. */
function pool(layer: Node[], wanted: number[], heightOf: (node: Node) => number): void {
  const offsets: number[] = [];
  const blocks: { sum: number; size: number }[] = [];
  layer.forEach((node, index) => {
    const above = layer[index - 1];
    offsets.push(above ? offsets[index - 1]! + (heightOf(above) + heightOf(node)) / 2 : 0);
    blocks.push({ sum: wanted[index]! - offsets[index]!, size: 1 });
    while (blocks.length > 1) {
      const last = blocks.at(-1)!;
      const other = blocks.at(-2)!;
      if (other.sum / other.size <= last.sum / last.size) break;
      other.sum += last.sum;
      other.size += last.size;
      blocks.pop();
    }
  });
  let index = 0;
  for (const block of blocks) {
    for (let taken = 0; taken < block.size; taken += 1, index += 1) {
      layer[index]!.y = block.sum / block.size + offsets[index]!;
    }
  }
}

function drawn(
  nodes: Map<string, Node>, chains: { from: string; to: string; bends: Node[] }[], count: number, size: Size,
): Layout {
  const all = [...nodes.values(), ...chains.flatMap((chain) => chain.bends)];
  const top = Math.min(...all.map((node) => node.y - (node.isBend ? 0 : size.height / 2)), Infinity);
  const bottom = Math.max(...all.map((node) => node.y + (node.isBend ? 0 : size.height / 2)), -Infinity);
  const x = (layer: number): number => layer * (size.width + size.gapX);
  const places = new Map<string, Place>();
  for (const [id, node] of nodes) places.set(id, { x: x(node.layer), y: node.y - size.height / 2 - top, layer: node.layer });
  const links = chains.map(({ from, to, bends }): Link => {
    const start = places.get(from)!;
    const end = places.get(to)!;
    const between = bends.flatMap((bend): [number, number][] => [
      [x(bend.layer), bend.y - top],
      [x(bend.layer) + size.width, bend.y - top],
    ]);
    const first: [number, number] = [start.x + size.width, start.y + size.height / 2];
    return { from, to, points: [first, ...between, [end.x, end.y + size.height / 2]] };
  });
  return { places, links, width: Math.max(0, x(count) - size.gapX), height: nodes.size ? bottom - top : 0 };
}

/** A smooth path through the points of a link. */
export function linkPath(points: [number, number][]): string {
  return points.reduce((path, [x, y], index) => {
    const last = points[index - 1];
    if (!last) return `M${x},${y}`;
    const middle = (last[0] + x) / 2;
    return path + (last[1] === y ? `L${x},${y}` : `C${middle},${last[1]} ${middle},${y} ${x},${y}`);
  }, "");
}

import type { Node } from '../api/schemas.ts';
import { plural } from './format.ts';

/** Clusters that are drawn: more would be a hedgehog. */
const CLUSTERS_MAX = 24;
/** Dots of one cluster; more are told as a number. */
const DOTS_MAX = 60;

const WIDTH = 720;
const CELL = 160;
const COLUMNS = 4;

/**
 * Who talks to whom: this gateway, the clusters, and each node as a dot. A node without a tunnel to this gateway is drawn hollow; where
 * there are some that others hear, they are at other gateways.
 */
export function NetworkMap({ nodes }: { nodes: readonly Node[] }) {
  const clusters = new Map<string, Node[]>();
  for (const node of nodes) {
    const name = `${node.cluster} (${node.provider})`;
    const list = clusters.get(name);
    if (list === undefined) clusters.set(name, [node]);
    else list.push(node);
  }
  const shown = [...clusters].sort((a, b) => b[1].length - a[1].length).slice(0, CLUSTERS_MAX);
  if (shown.length === 0) return null;
  const height = 70 + Math.ceil(shown.length / COLUMNS) * CELL;
  const columns = Math.min(COLUMNS, shown.length);
  const others = nodes.some(isElsewhere);
  const here = others ? WIDTH / 3 : WIDTH / 2;
  const there = (2 * WIDTH) / 3;
  return (
    <svg
      class="map"
      viewBox={`0 0 ${WIDTH} ${height}`}
      role="img"
      aria-label={`${others ? 'This gateway, others,' : 'One gateway'} and ${plural(clusters.size, 'cluster')} with ${plural(nodes.length, 'node')}`}
    >
      {shown.map(([name, members], n) => {
        const { x, y } = place(n, columns);
        return (
          <g key={name}>
            {members.some(({ connected }) => connected) && <line x1={here} y1={40} x2={x} y2={y - 50} class="way" />}
            {members.some(isElsewhere) && <line x1={there} y1={40} x2={x} y2={y - 50} class="way other" />}
          </g>
        );
      })}
      <Gateway x={here} name={others ? 'this gateway' : 'gateway'} />
      {others && <Gateway x={there} name="others" />}
      {shown.map(([name, members], n) => (
        <Cluster key={name} name={name} members={members} {...place(n, columns)} />
      ))}
    </svg>
  );
}

/** It is alive, and its tunnel is at another gateway. */
function isElsewhere({ connected, suspected, state }: Node): boolean {
  return !connected && !suspected && state !== 'DOWN';
}

function Gateway({ x, name }: { x: number; name: string }) {
  return (
    <g>
      <rect x={x - 60} y={12} width={120} height={30} rx={6} class="gateway" />
      <text x={x} y={32} text-anchor="middle">
        {name}
      </text>
    </g>
  );
}

function place(n: number, columns: number): { x: number; y: number } {
  const width = WIDTH / columns;
  return { x: width * (n % columns) + width / 2, y: 70 + Math.floor(n / columns) * CELL + 60 };
}

function Cluster({ name, members, x, y }: { name: string; members: readonly Node[]; x: number; y: number }) {
  const dots = members.slice(0, DOTS_MAX);
  return (
    <g>
      <title>{`${name}: ${plural(members.length, 'node')}`}</title>
      <rect x={x - 75} y={y - 50} width={150} height={110} rx={8} class="cluster" />
      {dots.map((node, n) => (
        <circle
          key={node.session}
          cx={x - 63 + (n % 12) * 11.5}
          cy={y - 36 + Math.floor(n / 12) * 12}
          r={4}
          class={dotClass(node)}
        />
      ))}
      <text x={x} y={y + 34} text-anchor="middle">
        {name.length > 20 ? `${name.slice(0, 19)}…` : name}
      </text>
      <text x={x} y={y + 52} text-anchor="middle" class="quiet">
        {plural(members.length, 'node')}
      </text>
    </g>
  );
}

function dotClass({ state, suspected, connected }: Node): string {
  const kind = suspected || state === 'DOWN' ? 'bad' : state === 'SERVING' ? 'good' : 'wait';
  return connected ? kind : `${kind} hollow`;
}

import type { Node } from '../api/schemas.ts';
import { t } from '../texts/index.ts';
import { useMedia } from '../ui/use-media.ts';

const texts = t.nodes.map;

/** Clusters that are drawn: more would be a hedgehog. */
const CLUSTERS_MAX = 24;
/** Dots of one cluster; more are told as a number. */
const DOTS_MAX = 60;

/** Of the drawing's own; on a phone it is half as wide, so that its words can be read. */
const WIDTH = 720;
const COLUMNS = 4;
const NARROW = '(max-width: 34rem)';
const CELL = 160;

/**
 * Who talks to whom: this gateway, the clusters, and each node as a dot. A node without a tunnel to this gateway is drawn hollow; where
 * there are some that others hear, they are at other gateways.
 */
export function NetworkMap({ nodes }: { nodes: readonly Node[] }) {
  const narrow = useMedia(NARROW);
  const clusters = new Map<string, Node[]>();
  for (const node of nodes) {
    const name = `${node.cluster} (${node.provider})`;
    const list = clusters.get(name);
    if (list === undefined) clusters.set(name, [node]);
    else list.push(node);
  }
  const shown = [...clusters].sort((a, b) => b[1].length - a[1].length).slice(0, CLUSTERS_MAX);
  if (shown.length === 0) return null;
  const width = narrow ? WIDTH / 2 : WIDTH;
  const most = narrow ? COLUMNS / 2 : COLUMNS;
  const height = 70 + Math.ceil(shown.length / most) * CELL;
  const columns = Math.min(most, shown.length);
  const others = nodes.some(isElsewhere);
  const here = others ? width / 3.5 : width / 2;
  const there = width - here;
  return (
    <svg
      className="max-h-[32rem] w-full rounded-lg border border-line bg-surface p-2"
      viewBox={`0 0 ${width} ${height}`}
      role="img"
      aria-label={texts.label(others, clusters.size, nodes.length)}
    >
      {shown.map(([name, members], n) => {
        const { x, y } = place(n, columns, width);
        return (
          <g key={name}>
            {members.some(({ connected }) => connected) && (
              <line x1={here} y1={40} x2={x} y2={y - 50} className="stroke-line-strong" />
            )}
            {members.some(isElsewhere) && (
              <line x1={there} y1={40} x2={x} y2={y - 50} className="stroke-line-strong" strokeDasharray="4 4" />
            )}
          </g>
        );
      })}
      <Gateway x={here} name={others ? texts.here : texts.gateway} />
      {others && <Gateway x={there} name={texts.others} />}
      {shown.map(([name, members], n) => (
        <Cluster key={name} name={name} members={members} {...place(n, columns, width)} />
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
      <rect x={x - 60} y={12} width={120} height={30} rx={6} className="fill-accent-soft stroke-accent" />
      <text x={x} y={32} textAnchor="middle" className="fill-ink text-sm">
        {name}
      </text>
    </g>
  );
}

function place(n: number, columns: number, whole: number): { x: number; y: number } {
  const width = whole / columns;
  return { x: width * (n % columns) + width / 2, y: 70 + Math.floor(n / columns) * CELL + 60 };
}

function Cluster({ name, members, x, y }: { name: string; members: readonly Node[]; x: number; y: number }) {
  const dots = members.slice(0, DOTS_MAX);
  return (
    <g>
      <title>{`${name}: ${t.amounts.nodes(members.length)}`}</title>
      <rect x={x - 75} y={y - 50} width={150} height={110} rx={8} className="fill-sunken stroke-line" />
      {dots.map((node, n) => (
        <circle
          key={node.session}
          cx={x - 63 + (n % 12) * 11.5}
          cy={y - 36 + Math.floor(n / 12) * 12}
          r={4}
          className={dotClass(node)}
        />
      ))}
      <text x={x} y={y + 34} textAnchor="middle" className="fill-ink text-sm">
        {name.length > 20 ? `${name.slice(0, 19)}…` : name}
      </text>
      <text x={x} y={y + 52} textAnchor="middle" className="fill-muted text-xs">
        {t.amounts.nodes(members.length)}
      </text>
    </g>
  );
}

function dotClass({ state, suspected, connected }: Node): string {
  const kind = suspected || state === 'DOWN' ? 'bad' : state === 'SERVING' ? 'good' : 'wait';
  return DOTS[kind][connected ? 'full' : 'hollow'];
}

const DOTS = {
  good: { full: 'fill-good', hollow: 'fill-transparent stroke-good' },
  wait: { full: 'fill-wait', hollow: 'fill-transparent stroke-wait' },
  bad: { full: 'fill-bad', hollow: 'fill-transparent stroke-bad' },
} as const;

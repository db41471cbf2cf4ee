import { useMemo, useState } from 'react';
import type { Node } from '../../api/schemas.ts';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { useMedia } from '../../ui/use-media.ts';

const texts = t.nodes.map;

/** Clusters that are shown until the user asks for more. */
const CLUSTERS_SHOWN = { wide: 12, narrow: 3 };
const NARROW = '(max-width: 34rem)';
/** Maximum number of squares of one cluster. Further nodes are shown as a number. */
const SQUARES_MAX = 240;

type Kind = 'good' | 'wait' | 'bad';
const KINDS: readonly Kind[] = ['good', 'wait', 'bad'];
const SQUARES = {
  good: { full: 'fill-good stroke-good', hollow: 'fill-transparent stroke-good' },
  wait: { full: 'fill-wait stroke-wait', hollow: 'fill-transparent stroke-wait' },
  bad: { full: 'fill-bad stroke-bad', hollow: 'fill-transparent stroke-bad' },
} as const;
const LABELS: Readonly<Record<Kind, string>> = { good: texts.serving, wait: texts.waiting, bad: texts.silent };

interface Cluster {
  name: string;
  provider: string;
  nodes: Node[];
  counts: Record<Kind, number>;
  /** Nodes that are connected to another gateway. */
  elsewhere: number;
}

interface ClusterMapProps {
  nodes: readonly Node[];
  /** `words`: a search text that finds only this cluster. */
  choose: (words: string) => void;
}

/** Each cluster as a card and each node as a square. Clusters with problems come first, then the largest. */
export function ClusterMap({ nodes, choose }: ClusterMapProps) {
  const clusters = useMemo(() => clustersOf(nodes), [nodes]);
  const [all, setAll] = useState(false);
  const most = CLUSTERS_SHOWN[useMedia(NARROW) ? 'narrow' : 'wide'];
  if (clusters.length === 0) return null;
  const elsewhere = clusters.reduce((sum, cluster) => sum + cluster.elsewhere, 0);
  const shown = all ? clusters : clusters.slice(0, most);
  return (
    <section aria-label={texts.label(clusters.length, nodes.length)} className="flex flex-col gap-3">
      <p className="flex flex-wrap gap-x-5 gap-y-1 text-muted text-sm">
        {KINDS.map((kind) => (
          <Key key={kind} className={SQUARES[kind].full} words={LABELS[kind]} />
        ))}
        {elsewhere > 0 && <Key className={SQUARES.good.hollow} words={texts.elsewhere(elsewhere)} />}
      </p>
      <ul className="grid grid-cols-[repeat(auto-fill,minmax(13rem,1fr))] gap-3">
        {shown.map((cluster) => (
          <ClusterCard key={`${cluster.name} ${cluster.provider}`} cluster={cluster} choose={choose} />
        ))}
      </ul>
      {shown.length < clusters.length && (
        <p>
          <Button size="small" onClick={() => setAll(true)}>
            {texts.showAll(clusters.length)}
          </Button>
        </p>
      )}
    </section>
  );
}

function Key({ className, words }: { className: string; words: string }) {
  return (
    <span className="inline-flex items-center gap-1.5">
      <svg viewBox="0 0 10 10" className="size-2.5" aria-hidden="true">
        <rect x="1" y="1" width="8" height="8" rx="1.5" strokeWidth="1.5" className={className} />
      </svg>
      {words}
    </span>
  );
}

function ClusterCard({ cluster, choose }: { cluster: Cluster; choose: (words: string) => void }) {
  const { name, provider, nodes, counts } = cluster;
  const notServing = KINDS.filter((kind) => kind !== 'good' && counts[kind] > 0);
  return (
    <li className="flex min-w-0 flex-col gap-2 rounded-lg border border-line bg-surface p-3">
      <div className="flex items-baseline justify-between gap-2">
        <button
          type="button"
          onClick={() => choose(`${name} ${provider}`)}
          aria-label={texts.find(name, provider)}
          className="min-w-0 truncate rounded-sm font-medium text-sm hover:underline"
        >
          {name} <span className="font-normal text-muted">{provider}</span>
        </button>
        <span className="shrink-0 text-muted text-xs tabular-nums">{t.amounts.nodes(nodes.length)}</span>
      </div>
      <Squares nodes={nodes} />
      {notServing.length > 0 && (
        <p className="flex flex-wrap gap-x-3 text-xs">
          {notServing.map((kind) => (
            <span key={kind} className={kind === 'bad' ? 'text-bad' : 'text-wait'}>
              {counts[kind]} {LABELS[kind]}
            </span>
          ))}
        </p>
      )}
    </li>
  );
}

/** Number of squares in a row: as many as fit into a card of 13 rem. */
const COLUMNS = 20;
/** Distance between two squares, in units of the drawing. */
const CELL = 10;

function Squares({ nodes }: { nodes: readonly Node[] }) {
  const drawn = nodes.slice(0, SQUARES_MAX);
  const rows = Math.ceil(drawn.length / COLUMNS);
  return (
    <svg viewBox={`0 0 ${COLUMNS * CELL} ${rows * CELL}`} className="w-full" aria-hidden="true">
      {drawn.map((node, n) => (
        <rect
          key={node.session}
          x={(n % COLUMNS) * CELL + 1}
          y={Math.floor(n / COLUMNS) * CELL + 1}
          width={CELL - 3}
          height={CELL - 3}
          rx="1.5"
          strokeWidth="1.2"
          className={SQUARES[kindOf(node)][node.connected ? 'full' : 'hollow']}
        />
      ))}
    </svg>
  );
}

function kindOf({ state, suspected }: Node): Kind {
  if (suspected || state === 'DOWN') return 'bad';
  return state === 'SERVING' ? 'good' : 'wait';
}

function clustersOf(nodes: readonly Node[]): Cluster[] {
  const clusters = new Map<string, Cluster>();
  for (const node of nodes) {
    const { cluster: name, provider } = node;
    const key = `${name} ${provider}`;
    const cluster = clusters.get(key) ?? {
      name,
      provider,
      nodes: [],
      counts: { good: 0, wait: 0, bad: 0 },
      elsewhere: 0,
    };
    clusters.set(key, cluster);
    cluster.nodes.push(node);
    const kind = kindOf(node);
    cluster.counts[kind]++;
    if (!node.connected && kind === 'good') cluster.elsewhere++;
  }
  for (const cluster of clusters.values())
    cluster.nodes.sort((a, b) => KINDS.indexOf(kindOf(b)) - KINDS.indexOf(kindOf(a)));
  return [...clusters.values()].sort(
    (a, b) => b.counts.bad - a.counts.bad || b.nodes.length - a.nodes.length || a.name.localeCompare(b.name),
  );
}

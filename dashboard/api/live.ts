/** The registry as it changes: the gateway's event stream, gathered for one paint at a time. */
import * as z from 'zod/mini';
import { type Node, nodeSchema } from './schemas.ts';

const snapshotSchema = z.object({ data: z.array(nodeSchema) });
const goneSchema = z.object({ session: z.string() });

export type Connection = 'connecting' | 'live' | 'lost';

export interface Live {
  nodes: ReadonlyMap<string, Node>;
  connection: Connection;
}

/** Joins and losses that this page has seen, newest first; at most so many. */
export const HISTORY_MAX = 200;

export interface Happening {
  at: number;
  session: string;
  provider: string;
  what: string;
}

/** Calls `onChange` at most once a frame. The browser connects again by itself. */
export function watchNodes(onChange: (live: Live, history: readonly Happening[]) => void): () => void {
  const nodes = new Map<string, Node>();
  const history: Happening[] = [];
  let connection: Connection = 'connecting';
  let frame = 0;
  const changed = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      onChange({ nodes: new Map(nodes), connection }, history.slice());
    });
  };
  const put = (node: Node) => {
    const before = nodes.get(node.session);
    nodes.set(node.session, node);
    const what = difference(before, node);
    if (what === undefined) return;
    history.unshift({ at: Date.now(), session: node.session, provider: node.provider, what });
    history.length = Math.min(history.length, HISTORY_MAX);
  };
  const source = new EventSource('/v1/registry/nodes/stream');
  source.addEventListener('snapshot', ({ data }: MessageEvent<string>) => {
    nodes.clear();
    for (const node of snapshotSchema.parse(JSON.parse(data)).data) nodes.set(node.session, node);
    connection = 'live';
    changed();
  });
  source.addEventListener('node', ({ data }: MessageEvent<string>) => {
    put(nodeSchema.parse(JSON.parse(data)));
    changed();
  });
  source.addEventListener('gone', ({ data }: MessageEvent<string>) => {
    nodes.delete(goneSchema.parse(JSON.parse(data)).session);
    changed();
  });
  source.addEventListener('error', () => {
    connection = 'lost';
    changed();
  });
  source.addEventListener('open', () => {
    connection = 'live';
    changed();
  });
  return () => {
    source.close();
    cancelAnimationFrame(frame);
  };
}

function difference(before: Node | undefined, now: Node): string | undefined {
  if (before === undefined) return `joined (${now.state})`;
  if (before.state !== now.state) return `${before.state} → ${now.state}`;
  if (before.suspected !== now.suspected) return now.suspected ? 'silent' : 'heard again';
  return undefined;
}

/** The registry as it changes: the gateway's event stream, gathered for one paint at a time. */
import * as z from 'zod/mini';
import { type ModelLoad, modelLoadSchema, type Node, nodeSchema } from './schemas.ts';

const snapshotSchema = z.object({ data: z.array(nodeSchema) });
const loadSchema = z.object({ data: z.array(modelLoadSchema) });
const goneSchema = z.object({ session: z.string() });

export type Connection = 'connecting' | 'live' | 'lost';

export interface Live {
  nodes: ReadonlyMap<string, Node>;
  connection: Connection;
  /** Grows with every join and loss, and where some may have been missed. */
  moves: number;
  /** What engines do now, by model; of models that are not in it nothing is known. */
  loads: ReadonlyMap<string, ModelLoad>;
}

export const NOT_YET: Live = { nodes: new Map(), connection: 'connecting', moves: 0, loads: new Map() };

/** Calls `onChange` at most once a frame. The browser connects again by itself. */
export function watchNodes(onChange: (live: Live) => void): () => void {
  const nodes = new Map<string, Node>();
  let moves = 0;
  let loads = NOT_YET.loads;
  let connection: Connection = 'connecting';
  let frame = 0;
  const changed = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      onChange({ nodes: new Map(nodes), connection, moves, loads });
    });
  };
  const put = (node: Node) => {
    const before = nodes.get(node.session);
    nodes.set(node.session, node);
    if (before?.state !== node.state || before.suspected !== node.suspected) moves++;
  };
  const source = new EventSource('/v1/registry/nodes/stream?load=1');
  source.addEventListener('snapshot', ({ data }: MessageEvent<string>) => {
    nodes.clear();
    for (const node of snapshotSchema.parse(JSON.parse(data)).data) nodes.set(node.session, node);
    moves++;
    connection = 'live';
    changed();
  });
  source.addEventListener('node', ({ data }: MessageEvent<string>) => {
    put(nodeSchema.parse(JSON.parse(data)));
    changed();
  });
  source.addEventListener('load', ({ data }: MessageEvent<string>) => {
    loads = new Map(loadSchema.parse(JSON.parse(data)).data.map((one) => [one.id, one]));
    changed();
  });
  source.addEventListener('gone', ({ data }: MessageEvent<string>) => {
    nodes.delete(goneSchema.parse(JSON.parse(data)).session);
    changed();
  });
  source.addEventListener('error', () => {
    connection = 'lost';
    loads = NOT_YET.loads;
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

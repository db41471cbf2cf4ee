/** The live registry: the gateway's event stream, collected until the next paint. */
import * as z from 'zod/mini';
import { type ModelLoad, modelLoadSchema, type Node, nodeSchema } from './schemas.ts';

const snapshotSchema = z.object({ data: z.array(nodeSchema) });
const loadSchema = z.object({ data: z.array(modelLoadSchema) });
const goneSchema = z.object({ session: z.string() });

export type Connection = 'connecting' | 'live' | 'lost';

export interface Live {
  nodes: ReadonlyMap<string, Node>;
  connection: Connection;
  /** Grows with every change of a node's state, and after a reconnect, which may have missed some. */
  moves: number;
  /** Current load of engines, by model; a missing model is unknown. */
  loads: ReadonlyMap<string, ModelLoad>;
}

export const NOT_YET: Live = { nodes: new Map(), connection: 'connecting', moves: 0, loads: new Map() };

/**
 * A browser gives up for good if the response is an error, as from a proxy while its gateway restarts. So the page
 * reconnects after this delay.
 */
const RETRY_MS = 3_000;
const RETRY_MAX_MS = 30_000;

/** Calls `onChange` at most once per frame. Reconnects until the returned function is called. */
export function watchNodes(onChange: (live: Live) => void): () => void {
  const nodes = new Map<string, Node>();
  let moves = 0;
  let loads = NOT_YET.loads;
  let connection: Connection = 'connecting';
  let frame = 0;
  let againMs = RETRY_MS;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let source: EventSource;
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
  const onSnapshot = ({ data }: MessageEvent<string>) => {
    nodes.clear();
    for (const node of snapshotSchema.parse(JSON.parse(data)).data) nodes.set(node.session, node);
    moves++;
    connection = 'live';
    changed();
  };
  const onNode = ({ data }: MessageEvent<string>) => {
    put(nodeSchema.parse(JSON.parse(data)));
    changed();
  };
  const onLoad = ({ data }: MessageEvent<string>) => {
    loads = new Map(loadSchema.parse(JSON.parse(data)).data.map((one) => [one.id, one]));
    changed();
  };
  const onGone = ({ data }: MessageEvent<string>) => {
    nodes.delete(goneSchema.parse(JSON.parse(data)).session);
    changed();
  };
  const onOpen = () => {
    againMs = RETRY_MS;
    connection = 'live';
    changed();
  };
  const onError = () => {
    connection = 'lost';
    loads = NOT_YET.loads;
    changed();
    if (source.readyState !== EventSource.CLOSED) return;
    timer = setTimeout(connect, againMs);
    againMs = Math.min(RETRY_MAX_MS, 2 * againMs);
  };
  const connect = () => {
    source = new EventSource('/v1/registry/nodes/stream?load=1');
    source.addEventListener('snapshot', onSnapshot);
    source.addEventListener('node', onNode);
    source.addEventListener('load', onLoad);
    source.addEventListener('gone', onGone);
    source.addEventListener('error', onError);
    source.addEventListener('open', onOpen);
  };
  connect();
  return () => {
    clearTimeout(timer);
    source.close();
    cancelAnimationFrame(frame);
  };
}

/** The live registry, from the gateway's event stream. Events are collected and applied together, once per paint. */
import * as z from 'zod/mini';
import { basePath } from './base-path.ts';
import { liveNodeSchema, type ModelLoad, modelLoadSchema, type Node } from './schemas.ts';

const snapshotSchema = z.object({ data: z.array(liveNodeSchema) });
const loadSchema = z.object({ data: z.array(modelLoadSchema) });
const goneSchema = z.object({ session: z.string() });

export type ConnectionStatus = 'connecting' | 'live' | 'lost';

export interface Live {
  nodes: ReadonlyMap<string, Node>;
  connection: ConnectionStatus;
  /**
   * Grows with each change of a node's state, and with each reconnect, because changes before it may have been missed.
   */
  moves: number;
  /** Current load of engines, by model. A model without an entry has an unknown load. */
  loads: ReadonlyMap<string, ModelLoad>;
}

export const NOT_YET: Live = { nodes: new Map(), connection: 'connecting', moves: 0, loads: new Map() };

/**
 * The page itself reconnects after this delay. After an error response, as from a proxy while its gateway restarts, a
 * browser's EventSource never reconnects.
 */
const RETRY_MS = 3_000;
const RETRY_MAX_MS = 30_000;

/** The registry as the stream describes it. */
class LiveRegistry {
  readonly #nodes = new Map<string, Node>();
  #moves = 0;
  #loads = NOT_YET.loads;
  connection: ConnectionStatus = 'connecting';

  get now(): Live {
    return { nodes: new Map(this.#nodes), connection: this.connection, moves: this.#moves, loads: this.#loads };
  }

  snapshot(data: string): void {
    this.#nodes.clear();
    for (const node of snapshotSchema.parse(JSON.parse(data)).data) this.#nodes.set(node.session, node);
    this.#moves++;
    this.connection = 'live';
  }

  node(data: string): void {
    const node = liveNodeSchema.parse(JSON.parse(data));
    const before = this.#nodes.get(node.session);
    this.#nodes.set(node.session, node);
    if (before?.state !== node.state || before.suspected !== node.suspected) this.#moves++;
  }

  load(data: string): void {
    this.#loads = new Map(loadSchema.parse(JSON.parse(data)).data.map((one) => [one.id, one]));
  }

  gone(data: string): void {
    this.#nodes.delete(goneSchema.parse(JSON.parse(data)).session);
  }

  lost(): void {
    this.connection = 'lost';
    this.#loads = NOT_YET.loads;
  }
}

const EVENTS = ['snapshot', 'node', 'load', 'gone'] as const;

/** Calls `onChange` at most once per frame. Reconnects until the returned function is called. */
export function watchNodes(onChange: (live: Live) => void): () => void {
  const registry = new LiveRegistry();
  let frame = 0;
  let againMs = RETRY_MS;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let source: EventSource;
  const changed = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      onChange(registry.now);
    });
  };
  const onOpen = () => {
    againMs = RETRY_MS;
    registry.connection = 'live';
    changed();
  };
  const onError = () => {
    registry.lost();
    changed();
    if (source.readyState !== EventSource.CLOSED) return;
    timer = setTimeout(connect, againMs);
    againMs = Math.min(RETRY_MAX_MS, 2 * againMs);
  };
  const connect = () => {
    source = new EventSource(`${basePath}/v1/registry/nodes/stream?load=1`);
    for (const event of EVENTS)
      source.addEventListener(event, ({ data }: MessageEvent<string>) => {
        registry[event](data);
        changed();
      });
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

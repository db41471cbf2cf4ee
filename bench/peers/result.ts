/** The results of a peer. */
import { markdown } from '../report.ts';
import type { Behaviour } from './behaviour.ts';
import type { Peer } from './peer.ts';

export interface Result {
  name: string;
  version: string;
  does: Peer['does'];
  /** Milliseconds added to the median of the direct path, at 16 requests/s. */
  unaryMs: number;
  firstTokenMs: number;
  /** Requests per second at 64 connections. */
  perSecond: number;
  directPerSecond: number;
  /** Tokens per second of 64 unpaced streams, as a fraction of the direct path. */
  tokens: number;
  behaviour: Behaviour;
}

const COLUMNS: Record<string, (result: Result) => string> = {
  '': ({ name, version }) => `${name} (${version})`,
  'keys, usage, tunnel': ({ does }) =>
    [does.keys, does.usage, does.tunnel].map((yes) => (yes ? 'yes' : 'no')).join(', '),
  'added, unary': ({ unaryMs }) => `${unaryMs.toFixed(2)} ms`,
  'added, first token': ({ firstTokenMs }) => `${firstTokenMs.toFixed(2)} ms`,
  'requests/s': ({ perSecond }) => Math.round(perSecond).toLocaleString('en'),
  '64 streams, of direct': ({ tokens }) => tokens.toFixed(2),
  'client leaves a stream': ({ behaviour }) => letGo(behaviour.leavesStream),
  '… a unary answer': ({ behaviour }) => letGo(behaviour.leavesUnary),
  'engine dies in a stream': ({ behaviour }) => behaviour.engineDies,
};

function letGo(ms: number | undefined): string {
  return ms === undefined ? 'engine goes on' : `${ms} ms`;
}

/** Markdown. */
export function tableOf(results: readonly Result[]): string {
  const names = Object.keys(COLUMNS);
  const rows = results.map((result) => Object.values(COLUMNS).map((cell) => cell(result)));
  return markdown([names, ...rows]);
}

import { describe, expect, it } from 'vitest';
import type { NetworkRow } from '../../../agent/host/control-protocol.ts';
import { networkTable } from '../../../agent/life/network-table.ts';

const row = (session: string, more: Partial<NetworkRow> = {}): NetworkRow => ({
  session: session.padEnd(26, '2'),
  issuer: 'local',
  provider: 'lab',
  cluster: 'alps',
  state: 'SERVING',
  liveness: 'alive',
  own: false,
  host: 'nid001',
  models: [{ id: 'org/model', state: 'ready' }],
  gpus: [{ class: 'GH200', count: 4 }],
  ...more,
});

describe('the network as a table', () => {
  it('has a line for each session, in columns, with what it serves and how it stands', () => {
    const lines = networkTable([
      row('aaaaaaaa', { own: true }),
      row('bbbbbbbb', { liveness: 'suspected', models: [{ id: 'org/other', state: 'loading' }] }),
      row('cccccccc', { issuer: 'eth', state: 'JOIN', models: [], gpus: [] }),
    ]);
    expect(lines).toEqual([
      'network: 3 sessions, 1 serving',
      '  SESSION    STATE                PROVIDER  CLUSTER  HOST    HARDWARE  MODELS',
      '  aaaaaaaa*  SERVING              lab       alps     nid001  4 GH200   org/model',
      '  bbbbbbbb   SERVING (suspected)  lab       alps     nid001  4 GH200   org/other (loading)',
      '  cccccccc   JOIN                 lab@eth   alps     nid001  no GPU    -',
    ]);
  });

  it('lets no other agent write to this terminal', () => {
    const lines = networkTable([
      row('aaaaaaaa', { host: 'a\u001b[2Jb\nc', models: [{ id: 'x\u0007y', state: 'ready' }] }),
    ]);
    expect([...lines.join('')].filter((char) => char < ' ' || char === '\u007f')).toEqual([]);
  });
});

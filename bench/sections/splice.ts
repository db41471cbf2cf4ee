/** What owning the public socket costs: the same small answer of the runtime, asked at its own socket and at the public one, in turns. */
import { spawnSync } from 'node:child_process';
import { Client } from '../client.ts';
import type { House } from '../house.ts';
import { judged, type Row } from '../report.ts';
import { median, repeated } from '../stats.ts';

const LIMIT_MS = 0.04;

/** The Unix socket that workerd itself listens on. */
function runtimeAddress(house: House): string | undefined {
  const { stdout } = spawnSync('ss', ['-Hlxp'], { encoding: 'utf8' });
  const line = (stdout ?? '').split('\n').find((text) => text.includes(`pid=${house.gateway.workerd()},`));
  const path = line?.trim().split(/\s+/)[4];
  return path === undefined ? undefined : `unix:${path}`;
}

export async function splice(house: House, plan: { repeats: number; requests: number }): Promise<Row[] | string> {
  const own = runtimeAddress(house);
  if (own === undefined) return 'workerd’s own socket was not found (is `ss` here?)';
  const bytes = Buffer.from('GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n');
  const inner = new Client({ url: own });
  const outer = new Client({ url: house.gateway.url });
  const added: number[] = [];
  const sides = { inner: [] as number[], outer: [] as number[] };
  for (let n = 0; n < plan.repeats; n++) {
    const times = { inner: [] as number[], outer: [] as number[] };
    for (let k = 0; k < plan.requests; k++) {
      times.inner.push((await inner.ask(bytes)).endMs);
      times.outer.push((await outer.ask(bytes)).endMs);
    }
    added.push(median(times.outer) - median(times.inner));
    sides.inner.push(median(times.inner));
    sides.outer.push(median(times.outer));
  }
  inner.close();
  outer.close();
  const { median: value, least, most } = repeated(added);
  const numbers = {
    direct: median(sides.inner),
    gateway: median(sides.outer),
    value,
    unit: 'ms',
    spread: [least, most] as [number, number],
  };
  return [
    judged(
      {
        what: 'the public socket’s own cost',
        at: 'GET /healthz, one connection, against workerd’s Unix socket',
        ...numbers,
      },
      { most: LIMIT_MS },
    ),
  ];
}

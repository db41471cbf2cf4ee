/** An engine that accepts requests and answers none, behind an ingress. */
import { afterEach, expect, it } from 'vitest';
import { endAll, eventually } from '../../support/processes.ts';
import { chatBody } from '../../support/test-cluster.ts';
import { Village } from './village.ts';

afterEach(endAll);

it('is found out within about 20 s: what hangs there is answered by the other node, and little is sent there until it answers again', async () => {
  const village = new Village();
  const here = await village.add({ engine: false });
  const [hung, well] = [await village.add(), await village.add()];
  hung.engine?.control({ fault: 'hang' });
  const ask = async () => {
    const response = await here.ask('/chat/completions', chatBody({ tokens: 2 }));
    await response.text();
    return { status: response.status, attempts: response.headers.get('x-otela-attempts') };
  };
  const first = await Promise.all(Array.from({ length: 8 }, ask));
  expect(first.every(({ status }) => status === 200)).toBe(true);
  expect(first.filter(({ attempts }) => attempts === '2').length).toBeGreaterThan(0);
  await eventually('the engine is told to stop', 3_000, () => (hung.engine?.running() === 0 ? true : undefined));
  const before = hung.engine?.requests.length ?? 0;
  for (let n = 0; n < 20; n++) expect((await ask()).status).toBe(200);
  expect((hung.engine?.requests.length ?? Number.NaN) - before).toBeLessThanOrEqual(1);
  expect(well.engine?.requests.length).toBeGreaterThan(20);
  hung.engine?.control({});
  const again = hung.engine?.requests.length ?? 0;
  await eventually('it serves again', 20_000, async () => {
    await Promise.all([ask(), ask(), ask()]);
    return (hung.engine?.requests.length ?? 0) - again >= 5 ? true : undefined;
  });
});

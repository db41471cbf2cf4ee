import { afterAll, describe, expect, it } from 'vitest';
import { YOUNG_GENERATION_FLAG, youngGenerationCommand } from '../../../gateway/hosts/node/serve/young-generation.ts';
import { commandOf } from '../../support/process-table.ts';
import { endAll, Managed, temporaryDirectory } from '../../support/processes.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

afterAll(endAll);

describe('the command line of a gateway', () => {
  const started = { execPath: '/node', execArgv: ['--no-warnings'], argv: ['/node', '/main.js', 'serve'], env: {} };

  it('has the bound, once', () => {
    const command = youngGenerationCommand(started);
    expect(command).toEqual(['/node', YOUNG_GENERATION_FLAG, '--no-warnings', '/main.js', 'serve']);
    expect(youngGenerationCommand({ ...started, execArgv: [YOUNG_GENERATION_FLAG] })).toBeUndefined();
  });

  it('keeps what an operator set', () => {
    expect(youngGenerationCommand({ ...started, execArgv: ['--max_semi_space_size=64'] })).toBeUndefined();
    const env = { NODE_OPTIONS: '--trace-warnings --max-semi-space-size=8' };
    expect(youngGenerationCommand({ ...started, env })).toBeUndefined();
  });
});

it('a gateway that is started without the bound starts itself anew with it: the same process, which signals reach', async () => {
  const data = await temporaryDirectory('otela-young');
  const gateway = new Managed([NODE, GATEWAY_MAIN, 'serve', '--port', '0', '--data', data], { label: 'gateway' });
  await gateway.line(/otela-gateway ready http/, 50_000);
  expect(commandOf(gateway.pid)).toContain(`${YOUNG_GENERATION_FLAG} ${GATEWAY_MAIN} serve`);
  gateway.signal('SIGTERM');
  expect(await gateway.end(10_000)).toEqual({ code: 0, signal: null });
});

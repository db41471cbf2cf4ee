/**
 * `node elastic-node.ts GATEWAY TOKEN_FILE MODEL REPLICAS SLOTS RATE TOKENS`: runs this many real agents in one
 * process, each with a mock engine.
 */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { main } from '../../../agent/cli/main.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { startEngine } from '../../../test/support/engine.ts';

const [gateway = '', tokenFile = '', model = '', replicas = '1', slots = '1', rate = '1', tokens = '1'] =
  process.argv.slice(2);
const stdout = new Writable({ write: (_piece, _encoding, done) => done() });

for (let n = 0; n < Number(replicas); n++) {
  const engine = await startEngine({
    models: [model],
    slots: Number(slots),
    behaviour: { tokensPerSecond: Number(rate), tokens: Number(tokens) },
  });
  const state = await mkdtemp(join(tmpdir(), 'otela-elastic-'));
  const line = ['start', '--gateway', gateway, '--token-file', tokenFile, '--engine-url', engine.url, '--mesh', 'off'];
  neverRejects(
    main(line, { PATH: process.env.PATH, HOME: state, XDG_RUNTIME_DIR: state }, { stdout }).then((code) =>
      console.error(`agent ${n} ended with ${code}`),
    ),
  );
}

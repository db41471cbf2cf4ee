/** An engine that is broken and does not end: the node gives up, so that the job frees its GPUs. */
import { describe, expect, it } from 'vitest';
import { freePort } from '../../support/processes.ts';
import { engineCommand, NODE, processRuns, scratch, startAgent } from '../support/harness.ts';

/** Serves like an engine; 300 ms after a request it breaks like a real one: a traceback, and then nothing. */
const engineThatPrints = (port: number, lines: string[], stream = 'stderr') => [
  '--',
  NODE,
  '-e',
  `const worker = require('node:child_process').spawn(process.execPath, ['-e', 'setInterval(() => {}, 1e6)'], { stdio: 'ignore' });
   require('node:http').createServer((q, a) => { a.setHeader('content-type', 'application/json'); a.end('{"data":[{"id":"m"}]}');
     setTimeout(() => process.${stream}.write(${JSON.stringify(`${lines.join('\n')}\n`)}), 300); }).listen(${port}, '127.0.0.1');
   console.log('engine', process.pid, 'worker', worker.pid); process.on('SIGTERM', () => {});`,
  '--',
  '--port',
  String(port),
];

const NCCL = [
  '[rank1]:[E1120 10:11:12.123456789 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4711, OpType=ALLREDUCE, NumelIn=8192, NumelOut=8192, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.',
  '[rank1]:[E1120 10:11:12.123456999 ProcessGroupNCCL.cpp:1785] [PG ID 2 PG GUID 3 Rank 1] Exception (either an error or timeout) detected by watchdog at work: 4711, last enqueued NCCL work: 4712, last completed NCCL work: 4710.',
];
const CUDA = [
  '(EngineCore_DP0 pid=77) Traceback (most recent call last):',
  '(EngineCore_DP0 pid=77)   File "/opt/vllm/v1/engine/core.py", line 708, in run_engine_core',
  '(EngineCore_DP0 pid=77) torch.AcceleratorError: CUDA error: an illegal memory access was encountered',
  '(EngineCore_DP0 pid=77) CUDA kernel errors might be asynchronously reported at some other API call.',
];

describe('a node whose engine is broken', () => {
  it.each([
    ['a NCCL time-out', NCCL, 'Watchdog caught collective operation timeout'],
    ['a CUDA error', CUDA, 'an illegal memory access was encountered'],
  ])(
    'by %s is down, has left, ends the engine with all its processes and exits with 70',
    async (_what, lines, sign) => {
      const run = startAgent(scratch(), engineThatPrints(await freePort(), lines));
      await run.state('SERVING');
      run.tunnel.inFlight = 3; // requests that the broken engine would never answer
      expect(await run.exit).toBe(70);
      expect(run.tunnel.states).toEqual(['JOIN', 'SERVING', 'DOWN', 'LEFT']);
      expect(run.stderr.text).toMatch(new RegExp(`so this node ends: .*${sign}`));
      expect(run.stderr.text).toContain('its last lines were:');
      const [, engine, worker] = /engine (\d+) worker (\d+)/.exec(run.stdout.text) ?? [];
      expect(processRuns(Number(engine))).toBe(false);
      expect(processRuns(Number(worker))).toBe(false);
    },
    30_000,
  );

  it('by a line of the operator’s choosing, on either stream', async () => {
    const lines = ['NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.'];
    const args = ['--fatal-pattern', 'Xid .*: (48|79),', ...engineThatPrints(await freePort(), lines, 'stdout')];
    const run = startAgent(scratch(), args);
    expect(await run.exit).toBe(70);
    expect(run.stderr.text).toContain('fallen off the bus');
  });

  it('serves on when the operator wants no such judgement', async () => {
    const run = startAgent(scratch(), engineThatPrints(await freePort(), CUDA), {
      OTELA_FATAL_PATTERN: 'none\na{1,3}b',
    });
    await run.until(() => run.stderr.text.includes('illegal memory access'));
    await run.state('SERVING');
    expect(run.stderr.text).not.toContain('this node ends');
  });

  it('serves on when a consumer’s prompt in the engine’s log says the same', async () => {
    const prompt = `INFO 11-20 10:11:12 [logger.py:43] Received request chatcmpl-1: prompt: 'RuntimeError: CUDA error: an illegal memory access was encountered', params: 1`;
    const run = startAgent(scratch(), engineThatPrints(await freePort(), [prompt, 'the end']));
    await run.until(() => run.stderr.text.includes('the end'));
    await run.state('SERVING');
    expect(run.stderr.text).not.toContain('this node ends');
  });

  it('ends its part of the engine on the other ranks as well', async () => {
    const body = `setTimeout(() => console.error(${JSON.stringify(CUDA[2])}), 200); setInterval(() => {}, 1e6)`;
    const run = startAgent(scratch(), ['--', NODE, '-e', body, '--', '--nnodes=2', '--node-rank=1']);
    expect(await run.exit).toBe(70);
    expect(run.tunnels).toHaveLength(0);
  });

  it('is told a pattern that is none before anything starts', async () => {
    const run = startAgent(scratch(), ['--fatal-pattern', '(', '--', ...engineCommand(await freePort())]);
    expect(await run.exit).toBe(2);
    expect(run.stderr.text).toContain('--fatal-pattern "("');
  });
});
